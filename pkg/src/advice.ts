/** What can be done where there is no adapter. */

import { TinyloomError } from "./error.js";
import { inNode } from "./node.js";

/** Milliseconds for which a lost device explains a missing adapter: Chromium's block of two minutes. */
const REMEMBERED = 150_000;

/**
 * Adds to a missing adapter what can be done about it here.
 *
 * @param failed - when a device of this page was last lost.
 */
export function withAdvice(error: TinyloomError, failed: number | undefined): TinyloomError {
  return new TinyloomError(error.code, `${error.message}; ${advice(failed)}`, {
    cause: error.cause,
  });
}

function advice(failed: number | undefined): string {
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
