/** Adds to a raw tensor what its views share: readiness, and an end with the runtime. */

import { TinyloomError } from "./error.js";
import type { ElementType } from "./formats.js";
import type { InnerRuntime } from "./inner-runtime.js";
import { RawHandle } from "./raw-handle.js";
import type { RawTensor } from "./raw-types.js";
import type { Owned } from "./runtime-types.js";

/** One GPU buffer, which any number of tensors look at. */
export class Allocation implements Owned {
  readonly runtime: InnerRuntime;
  readonly element: ElementType;
  /** Elements it has room for, from 0 on. */
  readonly elements: number;
  readonly handle: RawHandle<RawTensor>;
  /** Rejects where the device has no memory for it, or refused its first contents. */
  ready: Promise<unknown>;

  constructor(runtime: InnerRuntime, raw: RawTensor, element: ElementType, elements: number) {
    this.runtime = runtime;
    this.element = element;
    this.elements = elements;
    this.handle = new RawHandle("Tensor", raw, runtime.queue, runtime.module);
    this.ready = raw.allocated();
    this.ready.catch(() => undefined); // reported by the first call that needs it
    runtime.own(this);
  }

  lost(): void {
    const gone =
      "the GPU device of this tensor was lost, and tensors do not come back; make it again";
    this.handle.lose(new TinyloomError("device-lost", gone));
  }

  get bytes(): number {
    return this.element === "f16" ? 2 : 4;
  }

  free(): void {
    this.handle.free();
    this.runtime.disown(this);
  }
}
