// A Node process with Dawn that runs the bodies of tinyloom/worker, with a thread as the worker.
import { Worker } from "node:worker_threads";
import * as tinyloom from "tinyloom";
import * as ops from "tinyloom/ops";
import { connect, transfer } from "tinyloom/worker";
import { create } from "webgpu";
import { runWorkerBody } from "./bodies/worker-run.mjs";

const own = () => new Worker(new URL("own-worker.mjs", import.meta.url));
const results = await runWorkerBody({
  direct: { ...tinyloom, ops },
  connect,
  transfer,
  gpu: create([]),
  own,
});
await new Promise((sent) => process.send({ results }, sent));
process.exit(0); // Dawn's threads would keep the process alive
