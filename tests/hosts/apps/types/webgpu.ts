// With WebGPU's names, `device` is a GPUDevice in full.
import type { Runtime, Tensor } from "tinyloom";

export const limit = (runtime: Runtime): number => runtime.device.limits.maxBufferSize;
export const size = (tensor: Tensor): number => tensor.buffer.size;
