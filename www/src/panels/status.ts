import { TinyloomError } from "tinyloom/worker";
import { byId } from "../dom.ts";

const advice: Record<string, string> = {
  "webgpu-unavailable":
    "This browser has no WebGPU here. It is in current Chrome, Edge, Safari and Firefox, on a page from https or localhost.",
  "adapter-unavailable":
    "The browser has WebGPU but found no GPU to use. Its settings or graphics driver may have it switched off.",
};

/** Says in a line what the page does. */
export function say(text: string): void {
  byId("status", HTMLElement).textContent = text;
}

/** Shows a failure in the box at the top. */
export function showError(thrown: unknown): void {
  const { code, message } = TinyloomError.from(thrown);
  const box = byId("error", HTMLElement);
  box.dataset["code"] = code;
  box.textContent = advice[code] ? `${advice[code]} (${message})` : `${message} (${code})`;
  box.hidden = false;
}

export function clearError(): void {
  const box = byId("error", HTMLElement);
  box.hidden = true;
  box.textContent = "";
}
