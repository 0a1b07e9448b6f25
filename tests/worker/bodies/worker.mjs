// The API through `connect()`, beside the API itself: the same numbers to the bit, the same errors.
import { equal, ok, refuses } from "../../api/bodies/assert.mjs";
import { collect, text } from "../../api/bodies/kit.mjs";
import { given } from "./worker-arguments.mjs";
import { ends } from "./worker-ends.mjs";
import { results } from "./worker-results.mjs";

export const cases = { ...results, ...given, ...ends };

/** What a worker of the user's own adds: it may use what stays there. */
export const extra = (ops, BpeTokenizer) => ({
  /** How many workers of the web a tokenizer's training opens within this one. */
  async workersOfTraining() {
    const { Worker } = globalThis;
    let count = 0;
    if (Worker) {
      globalThis.Worker = class extends Worker {
        constructor(...given) {
          count += 1;
          super(...given);
        }
      };
    }
    try {
      await BpeTokenizer.train(text, { vocabSize: 270 });
    } finally {
      if (Worker) globalThis.Worker = Worker;
    }
    return count;
  },
  async norms(tensor) {
    const output = await ops.softmax(tensor);
    return { output, sum: (await output.data()).reduce((sum, one) => sum + one, 0) };
  },
  vendor: (runtime) => (runtime.device ? runtime.capabilities.adapter.vendor : ""),
  async *count(to) {
    for (let at = 1; at <= to; at++) yield at;
  },
});

/** A worker of the user's own: functions and iterators of its own beside the API. */
export async function tryOwn({ connect, worker }) {
  const remote = await connect({ worker });
  const runtime = await remote.Runtime.create();
  const tensor = await runtime.tensor([1, 2, 3, 4], [1, 4]);
  const { output, sum } = await remote.norms(tensor);
  equal(Math.round(sum * 1e6), 1e6, "the sum of a softmax");
  equal(output.shape, [1, 4], "the tensor's shape");
  ok(output instanceof remote.Tensor, "the class of a tensor that a function of one's own gave");
  equal(await remote.vendor(runtime), runtime.capabilities.adapter.vendor);
  equal(await collect(remote.count(3)), [1, 2, 3]);
  // Firefox may never return from opening one.
  const chromium = globalThis.navigator?.userAgent?.includes("Chrome/") ?? false;
  equal(await remote.workersOfTraining(), chromium ? 1 : 0, "workers within the worker");
  await runtime.destroy();
  await remote.close();
  await refuses("freed", "closed", () => remote.vendor(runtime));
  const again = await connect({ worker });
  equal(await collect(again.count(1)), [1], "the worker goes on after close()");
  await again.close();
}
