// The worker in which a tokenizer is trained. The build makes a text of it, with what it imports.
import { Learner } from "./learn.js";

/** What goes to the thread. Each text is answered when it is counted. */
export type ToThread =
  | { readonly kind: "begin"; readonly special: readonly string[] }
  | { readonly kind: "text"; readonly text: string }
  | { readonly kind: "flush" }
  | { readonly kind: "learn"; readonly most: number; readonly minFrequency: number };

/** What comes from it. */
export type FromThread =
  | { readonly kind: "ready" | "counted" }
  | { readonly kind: "learned"; readonly merges: number }
  | { readonly kind: "ended"; readonly merges: Uint32Array };

interface Scope {
  onmessage: ((event: { readonly data: ToThread }) => void) | null;
  postMessage(message: FromThread): void;
}

/** Milliseconds between two reports. */
const REPORT = 50;

const scope = globalThis as unknown as Scope;
let learner = new Learner([]);

scope.onmessage = ({ data }) => {
  if (data.kind === "begin") learner = new Learner(data.special);
  else if (data.kind === "flush") learner.flush();
  else if (data.kind === "text") {
    learner.add(data.text);
    scope.postMessage({ kind: "counted" });
  } else learn(data.most, data.minFrequency);
};
scope.postMessage({ kind: "ready" });

function learn(most: number, minFrequency: number): void {
  let told = performance.now();
  const work = learner.learn(most, minFrequency);
  for (;;) {
    const { value, done } = work.next();
    if (done) {
      scope.postMessage({ kind: "ended", merges: value });
      return;
    }
    if (performance.now() - told < REPORT) continue;
    told = performance.now();
    scope.postMessage({ kind: "learned", merges: value });
  }
}
