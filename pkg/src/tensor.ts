import { TinyloomError } from "./error.js";
import type { ElementType } from "./formats.js";
import { fromHalves, toHalves } from "./half.js";
import { expectMade, MADE } from "./inner.js";
import type { InnerRuntime } from "./inner-runtime.js";
import { tensors } from "./internal.js";
import { check, inspect, integer, invalid, oneOf, type Rules, show } from "./options.js";
import type { RawTensor } from "./raw-types.js";
import { Allocation } from "./tensor-allocation.js";
import { contiguous, countOf, inOrder, isContiguous, runs, spanOf, type View } from "./view.js";
import { expectRoom } from "./wasm-memory.js";

/**
 * Elements in row-major order: numbers, or for element `"f16"` also their raw bits in a `Uint16Array`.
 */
export type TensorData = Float32Array | Uint16Array | readonly number[];

/** Options of {@link Runtime.tensor}. */
export interface TensorOptions {
  /** Default `"f32"`. */
  element?: ElementType;
}

const OPTIONS: Rules<TensorOptions> = { element: oneOf("f32", "f16") };

/** Axes that a tensor may have. */
const MOST_AXES = 8;
/** Elements that the GPU's 32-bit indices reach. */
const MOST_ELEMENTS = 0xffff_ffff;
/** What the module's memory has to have room for. */
const ROOM = "the data of a tensor";

/** What {@link Runtime.tensor} does. @internal */
export let createTensor: (
  runtime: InnerRuntime,
  data: TensorData | null | undefined,
  shape: readonly number[],
  options: TensorOptions,
) => Tensor;

/**
 * Numbers on the GPU: a view of a buffer. Made by {@link Runtime.tensor} and by operations; `slice`,
 * `transpose` and `reshape` give further views of the same buffer without a copy. Operations on a
 * runtime's tensors, reads and writes among them, run one after the other in the order of the calls.
 *
 * @example
 * ```ts
 * const qkv = runtime.tensor(numbers, [1, 128, 3, 8, 64]); // [batch, tokens, which, heads, head_dim]
 * const query = qkv.slice(2, 0, 1).reshape([1, 128, 8, 64]).transpose(1, 2);
 * ```
 */
export class Tensor {
  readonly #allocation: Allocation;
  readonly #view: View;

  private constructor(made: typeof MADE, allocation: Allocation, view: View) {
    expectMade(made, "Tensor", "runtime.tensor(…)");
    this.#allocation = allocation;
    const { shape, strides, offset } = view;
    this.#view = { shape: Object.freeze([...shape]), strides: Object.freeze([...strides]), offset };
    tensors.set(this, {
      allocation,
      id: () => allocation.handle.callSync((raw) => raw.id()),
    });
  }

  static {
    createTensor = (...call) => Tensor.#create(...call);
  }

  static #create(
    runtime: InnerRuntime,
    data: TensorData | null | undefined,
    shape: readonly number[],
    options: TensorOptions,
  ): Tensor {
    const where = "runtime.tensor";
    const { element = "f32" } = check(where, options, OPTIONS);
    const sizes = shapeOf(where, shape);
    const count = countOf(sizes);
    if (count > MOST_ELEMENTS) {
      throw new TinyloomError(
        "limit-exceeded",
        `${where}: shape [${sizes}] has ${count} elements, and at most ${MOST_ELEMENTS} are allowed`,
      );
    }
    const given = data === null || data === undefined;
    const stored = given ? undefined : store(where, data, sizes, element);
    const raw = runtime.callSync((own) => own.tensor(count, element));
    const allocation = new Allocation(runtime, raw, element, count);
    const tensor = new Tensor(MADE, allocation, contiguous(sizes));
    try {
      if (stored) {
        const written = allocation.handle.callSync((raw) => tensor.#write(raw, stored));
        allocation.ready = allocation.ready.then(() => written);
        allocation.ready.catch(() => undefined);
      }
    } catch (error) {
      allocation.free();
      throw error;
    }
    return tensor;
  }

  /** Elements along each axis. */
  get shape(): readonly number[] {
    return this.#view.shape;
  }

  /** Elements of the buffer from one index of an axis to the next. */
  get strides(): readonly number[] {
    return this.#view.strides;
  }

  /** Elements of the buffer before the first of this view. */
  get offset(): number {
    return this.#view.offset;
  }

  /** How the elements are stored. */
  get element(): ElementType {
    return this.#allocation.element;
  }

  /**
   * The raw buffer on `runtime.device` with the data of the whole allocation, for work of your own:
   * its usage has `STORAGE`, `COPY_SRC` and `COPY_DST`. It holds what operations wrote whose promises
   * have resolved. Its end is {@link Tensor.free}, never `destroy()`.
   *
   * @throws {@link TinyloomError} `freed`.
   */
  get buffer(): GPUBuffer {
    return this.#allocation.handle.callSync((raw) => raw.buffer());
  }

  /**
   * The elements of this view in row-major order, f16 widened.
   *
   * @throws {@link TinyloomError} `freed`, `out-of-memory`, `device-lost`.
   */
  async data(): Promise<Float32Array<ArrayBuffer>> {
    const { runtime, handle, bytes, element } = this.#allocation;
    const [begin, end] = spanOf(this.#view);
    // Reads are of whole words.
    const first = Math.floor((begin * bytes) / 4) * 4;
    const last = Math.ceil((end * bytes) / 4) * 4;
    const read = await handle.run(async (raw) => {
      expectRoom(runtime.module, ROOM, last - first);
      await this.#allocation.ready;
      return raw.read(first, last - first);
    });
    // A copy out of the module's memory, with a buffer of its own.
    const whole = read.buffer as ArrayBuffer;
    const values = element === "f16" ? fromHalves(new Uint16Array(whole)) : new Float32Array(whole);
    return inOrder(values, { ...this.#view, offset: begin - first / bytes });
  }

  /**
   * Overwrites the elements of this view, given in row-major order. The data is copied at once.
   *
   * @throws {@link TinyloomError} `invalid-options` when the data does not fit the shape, or when a
   * part of an "f16" buffer does not begin and end at even elements; `freed`, `out-of-memory`,
   * `device-lost`.
   */
  async write(data: TensorData): Promise<void> {
    const stored = store("write", data, this.shape, this.element);
    // What is queued must not change with the caller's array.
    const own = stored.buffer === (data as Partial<Float32Array>).buffer ? stored.slice() : stored;
    this.#expectWords();
    await this.#allocation.handle.run(async (raw) => {
      await this.#allocation.ready;
      await this.#write(raw, own);
    });
  }

  /**
   * The part of an axis from `start` up to `end`, as a view.
   *
   * @param axis - from 0 on.
   * @param end - one past the last index; default the axis's length.
   * @throws {@link TinyloomError} `invalid-options`, `freed`.
   */
  slice(axis: number, start: number, end?: number): Tensor {
    const { shape, strides, offset } = this.#view;
    const at = this.#axis("slice", "axis", axis);
    const length = shape[at] as number;
    const begin = this.#whole("slice", "start", start, 0, length - 1);
    const stop = this.#whole("slice", "end", end ?? length, begin + 1, length);
    return this.#viewed({
      shape: shape.map((size, other) => (other === at ? stop - begin : size)),
      strides,
      offset: offset + begin * (strides[at] as number),
    });
  }

  /**
   * The same elements with two axes exchanged, as a view.
   *
   * @throws {@link TinyloomError} `invalid-options`, `freed`.
   */
  transpose(a: number, b: number): Tensor {
    const [from, to] = [this.#axis("transpose", "a", a), this.#axis("transpose", "b", b)];
    const source = (axis: number) => (axis === from ? to : axis === to ? from : axis);
    const swapped = (list: readonly number[]) =>
      list.map((_, axis) => list[source(axis)] as number);
    const { shape, strides, offset } = this.#view;
    return this.#viewed({ shape: swapped(shape), strides: swapped(strides), offset });
  }

  /**
   * The same elements in the same order under another shape, as a view.
   *
   * @throws {@link TinyloomError} `invalid-options` when the count differs or the elements do not lie
   * one after the other; `freed`.
   */
  reshape(shape: readonly number[]): Tensor {
    const sizes = shapeOf("reshape", shape);
    const [have, want] = [countOf(this.shape), countOf(sizes)];
    if (have !== want) {
      throw invalid(
        `reshape: [${sizes}] has ${want} elements and this tensor [${this.shape}] has ${have}; ` +
          "give a shape of as many",
      );
    }
    if (!isContiguous(this.#view)) {
      throw invalid(
        `reshape: the elements of this view (shape [${this.shape}], strides [${this.strides}]) do not ` +
          "lie one after the other; reshape before slice and transpose",
      );
    }
    return this.#viewed({ ...contiguous(sizes), offset: this.offset });
  }

  /**
   * Frees the buffer, for every view of it. Later calls give code "freed"; freeing again does
   * nothing. A runtime frees its tensors.
   */
  free(): void {
    this.#allocation.free();
  }

  #viewed(view: View): Tensor {
    void this.#allocation.handle.raw;
    return new Tensor(MADE, this.#allocation, view);
  }

  #axis(where: string, name: string, axis: unknown): number {
    return this.#whole(where, name, axis, 0, this.shape.length - 1);
  }

  #whole(where: string, name: string, value: unknown, low: number, high: number): number {
    const allowed = integer(low, high)(value);
    if (allowed === undefined) return value as number;
    throw invalid(
      `${where}: ${name} is ${show(value)}; give ${allowed} (the shape is [${this.shape}])`,
    );
  }

  /** Refuses a part of an f16 buffer whose ends lie within words, which are what the GPU copies. */
  #expectWords(): void {
    const { element, elements } = this.#allocation;
    if (element === "f32") return;
    runs(this.#view, (at, length) => {
      const whole = length % 2 === 0 || at + length === elements;
      if (at % 2 === 0 && whole) return;
      throw invalid(
        `write: this view's elements ${at} to ${at + length - 1} of the buffer do not begin and end at ` +
          'even ones, and "f16" is written in pairs; write a view whose rows are of even length',
      );
    });
  }

  /** Writes at once; the promise tells whether the device accepted it. */
  #write(raw: RawTensor, stored: Stored): Promise<void> {
    const { runtime, bytes } = this.#allocation;
    expectRoom(runtime.module, ROOM, stored.byteLength);
    let written = Promise.resolve();
    raw.begin();
    try {
      let done = 0;
      runs(this.#view, (at, length) => {
        raw.write(at * bytes, wholeWords(stored.subarray(done, done + length)));
        done += length;
      });
    } finally {
      written = raw.written();
      written.catch(() => undefined); // if a write throws, its error is reported
    }
    return written;
  }
}

/** Elements as they lie on the GPU. */
type Stored = Float32Array | Uint16Array;

/** The bytes, up to the end of the last word. */
function wholeWords(stored: Stored): Uint8Array {
  const bytes = new Uint8Array(stored.buffer, stored.byteOffset, stored.byteLength);
  if (bytes.length % 4 === 0) return bytes;
  const padded = new Uint8Array(Math.ceil(bytes.length / 4) * 4);
  padded.set(bytes);
  return padded;
}

/** The sizes of a shape, or code "invalid-options". */
function shapeOf(where: string, shape: unknown): readonly number[] {
  return inspect(`${where}: shape`, () => checkedShape(where, shape));
}

function checkedShape(where: string, shape: unknown): readonly number[] {
  const valid =
    Array.isArray(shape) &&
    shape.length >= 1 &&
    shape.length <= MOST_AXES &&
    Array.from(shape).every((size) => integer(1)(size) === undefined); // holes too
  if (valid) return [...(shape as number[])];
  const shown = Array.isArray(shape) ? `[${shape.map(show).join(", ")}]` : show(shape);
  throw invalid(
    `${where}: shape is ${shown}; give an array of 1 to ${MOST_AXES} whole numbers of at least 1`,
  );
}

/** The data as it will lie on the GPU: a view of the caller's where it lies so already. */
function store(
  where: string,
  data: unknown,
  shape: readonly number[],
  element: ElementType,
): Stored {
  return inspect(`${where}: data`, () => checkedData(where, data, shape, element));
}

function checkedData(
  where: string,
  data: unknown,
  shape: readonly number[],
  element: ElementType,
): Stored {
  const raw = data instanceof Uint16Array;
  if (raw && element !== "f16") {
    throw invalid(`${where}: data is a Uint16Array, raw bits of element "f16"; give numbers`);
  }
  const values = raw ? data : floats(where, data);
  const count = countOf(shape);
  if (values.length !== count) {
    throw invalid(
      `${where}: data has ${values.length} elements and the shape [${shape}] has ${count}; give as many`,
    );
  }
  return values instanceof Float32Array && element === "f16"
    ? toHalves(`${where}: data`, values)
    : values;
}

function floats(where: string, data: unknown): Float32Array {
  if (data instanceof Float32Array) return data;
  if (!Array.isArray(data)) {
    throw invalid(`${where}: data is ${show(data)}; give a Float32Array or an array of numbers`);
  }
  const at = data.findIndex((value) => typeof value !== "number");
  if (at >= 0) throw invalid(`${where}: data[${at}] is ${show(data[at])}; give a number`);
  return Float32Array.from(data as number[]);
}
