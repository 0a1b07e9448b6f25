/** Failures in a visitor's words, and what to do about them here. */
import { TinyloomError } from "tinyloom/worker";

/** What the browser is, as far as advice depends on it. */
interface Here {
  readonly userAgent: string;
  /** Whether the page comes from https or from this machine. */
  readonly secure: boolean;
  /** Whether there is a network; unknown counts as one. */
  readonly online?: boolean;
}

/** By the library's code. What is not here has a message that a visitor understands as it is. */
const WORDS: { readonly [code: string]: string } = {
  "out-of-memory":
    "The GPU has too little memory left for this. Choose a smaller model, or close other tabs.",
  "limit-exceeded": "This GPU does not take a model of that size. Choose a smaller one.",
  "device-lost":
    "The browser has taken the GPU away and does not give it back. Export what is only in memory, then reload the page.",
  "non-finite":
    "The numbers have grown without bound, so training has stopped. Usually the learning rate is too high: choose a lower one.",
  "invalid-config":
    "The page cannot train a model of that kind: its config.json asks for what is not supported.",
  "invalid-checkpoint":
    "These files are no model or run that the page can read, or a part of them is damaged.",
  "worker-unavailable":
    "The browser does not let the page open the worker in which the model lives. Reload the page, or use another browser.",
  "storage-full":
    "The browser's storage for this page is full. Delete runs that you no longer need.",
  "in-use": "Another tab has this run open. Close it there, or wait a moment.",
  "module-unavailable":
    "A part of the page did not load. Reload it; if that does not help, try again later.",
  "content-security": "A rule of this website keeps the page from running its program.",
  internal: "Something went wrong inside. Reload the page; your runs are kept.",
};

/** The exact words of a GPU that does not come back. What the browser says of it may be a sentence. */
export const goneWords = (message: string, why: string): string =>
  `${message.replace(/[.\s]+$/, "")}; reload the page to go on${why}`;

/** What happens to a model's bytes, where the package's own word could be taken for something else. */
const STAGES: { readonly [stage: string]: string } = { upload: "Copying to your GPU" };

/** A stage of the package's progress, as a visitor reads it. */
export const stageWords = (stage: string): string =>
  STAGES[stage] ?? stage.replace(/^download /, "Downloading ");

/** The label of a kernel, with layers counted from 1 as in the rest of the page. */
export const fromOne = (label: string): string =>
  label.replace(/\b(layer) (\d+)/gi, (_all, name, at) => `${name} ${Number(at) + 1}`);

/** Of a part of the page that the browser does not have yet. With a network, too, the server may be gone. */
export const OFFLINE =
  "This part of the page did not load: there is no network, or the page’s server does not answer. What has been loaded keeps working; try again later.";

/** Throws OFFLINE, with what went wrong as its cause. */
export function unreachable(cause: unknown): never {
  throw new TinyloomError("invalid-options", OFFLINE, { cause });
}

/** Where to get WebGPU in this browser on this system. */
function withoutWebGpu({ userAgent, secure }: Here): string {
  if (!secure) {
    return "Browsers give the GPU only to pages from https or from your own machine. Open this page by https.";
  }
  const linux = /Linux|X11/.test(userAgent) && !/Android/.test(userAgent);
  if (/Firefox\//.test(userAgent)) {
    if (/Android/.test(userAgent))
      return "Firefox for Android has no WebGPU yet. Use Chrome, from version 121 on.";
    return linux
      ? "Firefox on Linux has WebGPU switched off. Open about:config and set dom.webgpu.enabled to true, or use Chrome."
      : "Firefox has WebGPU from version 141 on Windows, and from 145 on a Mac with Apple silicon. Update it, or use Chrome.";
  }
  if (/iPhone|iPad/.test(userAgent))
    return "This needs iOS or iPadOS 26. Update in Settings, General, Software Update.";
  if (/Chrom(e|ium)\//.test(userAgent)) {
    if (/Android/.test(userAgent))
      return "Chrome for Android has WebGPU from version 121 on, on Android 12 or later. Update both.";
    return linux
      ? "Chrome on Linux gives WebGPU to some GPUs only. Open chrome://flags/#enable-unsafe-webgpu, enable it, and restart the browser."
      : "Update this browser: Chrome and Edge have WebGPU from version 113 on.";
  }
  if (/Macintosh/.test(userAgent))
    return "Safari has WebGPU from version 26 on. Update macOS, or use Chrome.";
  return "Use a current Chrome, Edge, Firefox or Safari.";
}

const withoutAdapter = ({ userAgent }: Here): string => {
  const settings = /Chrom(e|ium)\//.test(userAgent)
    ? "Open the browser's settings, choose System, and switch on graphics acceleration; chrome://gpu says what is missing."
    : "Switch on hardware acceleration in the browser's settings, and update the driver of the graphics card.";
  return `${settings} If the graphics driver has just crashed, wait two minutes or reload the page.`;
};

/** A failure in a visitor's words; undefined where the library's own message serves. */
export function wordsFor(code: string, here: Here): string | undefined {
  if (code === "webgpu-unavailable") {
    return `This browser offers no GPU to web pages (WebGPU). ${withoutWebGpu(here)}`;
  }
  if (code === "adapter-unavailable") {
    return `The browser found no GPU that it may use. ${withoutAdapter(here)}`;
  }
  if (here.online === false && (code === "module-unavailable" || code === "internal")) {
    return OFFLINE;
  }
  return WORDS[code];
}
