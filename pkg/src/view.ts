/** Where the elements of a tensor lie in its buffer: plain arithmetic. */

/** Counts of elements, of the buffer's from one index of an axis to the next, and before the first. */
export interface View {
  readonly shape: readonly number[];
  readonly strides: readonly number[];
  readonly offset: number;
}

/** How many elements a shape has. */
export function countOf(shape: readonly number[]): number {
  return shape.reduce((product, size) => product * size, 1);
}

/** The view of a whole buffer in row-major order. */
export function contiguous(shape: readonly number[]): View {
  const strides = shape.map((_, axis) => countOf(shape.slice(axis + 1)));
  return { shape, strides, offset: 0 };
}

/** First element of the buffer in the view, and one past the last. */
export function spanOf({ shape, strides, offset }: View): [begin: number, end: number] {
  const last = shape.reduce((sum, size, axis) => sum + (size - 1) * (strides[axis] as number), 0);
  return [offset, offset + last + 1];
}

/** How many axes are left, and how many elements each of their indices has, one after the other. */
function collapse({ shape, strides }: View): [axes: number, length: number] {
  let [axes, length] = [shape.length, 1];
  while (axes > 0 && (shape[axes - 1] === 1 || strides[axes - 1] === length)) {
    axes -= 1;
    length *= shape[axes] as number;
  }
  return [axes, length];
}

/** Whether the elements lie one after the other in row-major order. */
export function isContiguous(view: View): boolean {
  return collapse(view)[0] === 0;
}

/** Visits the longest stretches of the buffer that hold the view's elements, in row-major order. */
export function runs(view: View, visit: (at: number, length: number) => void): void {
  const { shape, strides, offset } = view;
  const [axes, length] = collapse(view);
  const walk = (axis: number, at: number): void => {
    if (axis === axes) {
      visit(at, length);
      return;
    }
    const [size, stride] = [shape[axis] as number, strides[axis] as number];
    for (let index = 0; index < size; index++) walk(axis + 1, at + index * stride);
  };
  walk(0, offset);
}

/** The view's elements of the buffer `values` in row-major order; `values` itself where it is that. */
export function inOrder(values: Float32Array<ArrayBuffer>, view: View): Float32Array<ArrayBuffer> {
  const count = countOf(view.shape);
  if (values.length === count && isContiguous(view)) return values;
  const result = new Float32Array(count);
  let done = 0;
  runs(view, (at, length) => {
    for (let index = 0; index < length; index++) result[done++] = values[at + index] as number;
  });
  return result;
}
