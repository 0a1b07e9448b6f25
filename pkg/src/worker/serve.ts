import { onConnect } from "./node.js";

/**
 * Makes this worker answer `connect({ worker })`. Call it before the first `await` of the worker's file.
 *
 * @param extra - what the page gets besides tinyloom's exports: functions, async generators and classes of
 * your own. They may use all that stays in the worker, such as `tinyloom/ops` and `runtime.device`. What
 * they take and give are the worker's objects, where the page has those that stand for them.
 *
 * @example
 * ```ts
 * import { softmax } from "tinyloom/ops";
 * import { serve } from "tinyloom/worker";
 *
 * export const extra = {
 *   async likeliest(tensor: Tensor) { … },
 * };
 * serve(extra);
 * ```
 */
export function serve(extra: object = {}): void {
  onConnect(async (port) => {
    // Here and not above: a page that only connects need not load what the worker has.
    const [{ expose }, { Host }, tinyloom, storage] = await Promise.all([
      import("./comlink.js"),
      import("./host.js"),
      import("../index.js"),
      import("../storage/index.js"),
    ]);
    expose(new Host({ ...tinyloom, ...storage, ...extra }), port);
  });
}
