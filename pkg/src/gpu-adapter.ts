/** The adapter that a runtime opens its device on, and what to do where there is none. */

import { TinyloomError } from "./error.js";
import { inNode } from "./node.js";
import { isA, show } from "./options.js";

/** Milliseconds for which a lost device explains a missing adapter: Chromium's block of two minutes. */
const REMEMBERED = 150_000;

/**
 * Asks for an adapter; the module checks what it is given.
 *
 * @throws {@link TinyloomError} `adapter-unavailable`.
 */
export async function requestAdapter(
  gpu: GPU,
  powerPreference: GPUPowerPreference = "high-performance",
): Promise<GPUAdapter> {
  let adapter: GPUAdapter | null;
  try {
    adapter = await gpu.requestAdapter({ powerPreference });
  } catch (cause) {
    throw unavailable(isA(cause, Error) ? cause.message : show(cause), cause);
  }
  if (!adapter) throw unavailable("requestAdapter found none");
  return adapter;
}

function unavailable(reason: string, cause?: unknown): TinyloomError {
  return new TinyloomError("adapter-unavailable", `no WebGPU adapter: ${reason}`, { cause });
}

/** When a device of this page was last lost, and not by `destroy()`. */
let failed: number | undefined;

/** Remembers that a device was lost. */
export function noteLoss({ reason }: { readonly reason: string }): void {
  if (reason !== "destroyed") failed = performance.now();
}

/** The error of a missing adapter, with what can be done about it here. */
export function advised(error: TinyloomError): TinyloomError {
  return new TinyloomError(error.code, `${error.message}; ${advice()}`, { cause: error.cause });
}

function advice(): string {
  const ago = failed === undefined ? Number.POSITIVE_INFINITY : performance.now() - failed;
  if (ago < REMEMBERED) {
    const lost = `the GPU was lost ${Math.round(ago / 1000)} s ago`;
    return inNode()
      ? `${lost}, and may take a while to come back: wait, or start the process again`
      : `${lost}, and a browser gives none to a site for two minutes after it was lost twice: wait that long, ` +
          "or have the user reload the page";
  }
  return inNode()
    ? "install a Vulkan driver for the GPU (on Windows DX12, on macOS Metal come with the system), or " +
        "name one in VK_ICD_FILENAMES, such as SwiftShader's vk_swiftshader_icd.json"
    : `enable hardware acceleration in the browser's settings, ${browsersOwn()}or try another browser; if the GPU has ` +
        "just crashed, wait two minutes or reload the page";
}

/** What some browsers have switched off. The guide "Browsers and GPUs" tells more. */
function browsersOwn(): string {
  const userAgent = (globalThis.navigator as Navigator | undefined)?.userAgent ?? "";
  if (/Firefox\//.test(userAgent)) {
    return "set gfx.webgpu.ignore-blocklist to true in about:config, ";
  }
  if (!/Linux/.test(userAgent) || /Android/.test(userAgent) || !/Chrom/.test(userAgent)) return "";
  return (
    "start Chromium with --enable-unsafe-webgpu --enable-features=Vulkan --ignore-gpu-blocklist (without a GPU: " +
    "--enable-unsafe-webgpu --use-webgpu-adapter=swiftshader), "
  );
}
