/** The adapter that a runtime opens its device on, and what to do where there is none. */

import { TinyloomError } from "./error.js";
import { inNode } from "./node.js";

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
    throw unavailable(cause instanceof Error ? cause.message : String(cause), cause);
  }
  if (!adapter) throw unavailable("requestAdapter found none");
  return adapter;
}

function unavailable(reason: string, cause?: unknown): TinyloomError {
  return new TinyloomError("adapter-unavailable", `no WebGPU adapter: ${reason}`, { cause });
}

/** Adds to a missing adapter what can be done about it here. */
export function withAdvice(error: TinyloomError): TinyloomError {
  if (error.code !== "adapter-unavailable") return error;
  const advice = inNode()
    ? "install a Vulkan driver for the GPU (on Windows DX12, on macOS Metal come with the system), or " +
      "name one in VK_ICD_FILENAMES, such as SwiftShader's vk_swiftshader_icd.json"
    : "enable hardware acceleration in the browser's settings, or try another browser";
  return new TinyloomError(error.code, `${error.message}; ${advice}`, { cause: error.cause });
}
