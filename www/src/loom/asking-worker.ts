/** Puts questions to a model away from the page's thread, which draws meanwhile. */
import { marksOf, type Question } from "./ask.ts";
import { type Shape, weightsOf, widened } from "./weights.ts";

/** What is asked. */
export interface Asking {
  readonly shape: Shape;
  /** The weights in 16 bits. */
  readonly halves: Uint16Array;
  readonly questions: readonly Question[];
  /** Heads that are cut. */
  readonly off: ReadonlySet<number>;
}

addEventListener("message", ({ data }: MessageEvent<Asking>) => {
  const { shape, halves, questions, off } = data;
  postMessage(marksOf(weightsOf(shape, widened(halves)), questions, off));
});
