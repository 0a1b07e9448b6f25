/** Asks and weaves away from the page's thread, which draws meanwhile. */
import { marksOf, type Question } from "./ask.ts";
import { type Cloth, weaving } from "./weave.ts";
import { type Shape, weightsOf, widened } from "./weights.ts";

/** The weights that a worker is sent. */
interface Sent {
  readonly shape: Shape;
  /** In 16 bits. */
  readonly halves: Uint16Array;
}

/** What is asked. */
export interface Asking extends Sent {
  readonly questions: readonly Question[];
  /** Heads that are cut. */
  readonly off: ReadonlySet<number>;
}

/** What is woven. */
export interface Weaving extends Sent {
  readonly cloth: Cloth;
}

addEventListener("message", ({ data }: MessageEvent<Asking | Weaving>) => {
  const weights = weightsOf(data.shape, widened(data.halves));
  if ("questions" in data) postMessage(marksOf(weights, data.questions, data.off));
  else postMessage([...weaving(weights, data.cloth)].at(-1));
});
