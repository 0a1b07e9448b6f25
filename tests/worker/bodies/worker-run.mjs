// Runs the bodies of tinyloom/worker in whichever host.
import { cases, tryOwn } from "./worker.mjs";

/**
 * Runs every case on one connection, and the user's own worker on another.
 *
 * @param host - `direct`: the package, with its entry `tinyloom/ops` as `ops`; `connect` and `transfer` of
 *   `tinyloom/worker`; `gpu`; `own`: opens a worker whose file calls `serve(extra(ops))`.
 * @returns `[{ name, ok, detail, milliseconds }]`.
 */
export async function runWorkerBody({ direct, connect, transfer, gpu, own }) {
  const connected = await connect();
  const tinyloom = Object.create(connected, { transfer: { value: transfer } });
  const runtime = await tinyloom.Runtime.create();
  const all = {
    ...cases,
    async "a worker of the user's own adds what it has"() {
      const worker = own();
      await tryOwn({ connect, worker });
      await worker.terminate();
    },
  };
  const results = [];
  for (const [name, work] of Object.entries(all)) {
    const began = performance.now();
    const result = { name, ok: true, detail: "" };
    try {
      result.detail = (await work({ tinyloom, direct, runtime, gpu })) ?? "";
    } catch (error) {
      result.ok = false;
      result.detail = `${error?.code ?? ""} ${error?.message} ${error?.stack}`;
    }
    result.milliseconds = Math.round(performance.now() - began);
    results.push(result);
  }
  await connected.close();
  return results;
}
