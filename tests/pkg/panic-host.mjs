// A Node process in which the module panics.
import { Runtime } from "tinyloom";
import { create } from "webgpu";
import { breakDevice } from "./panic-device.mjs";

// What the panic throws in a microtask would end the process.
process.on("uncaughtException", () => {});
const runtime = await Runtime.create({ gpu: create([]) });
const tensor = runtime.tensor([1, 2], [2]);
const other = runtime.tensor([3, 4], [2]);
breakDevice(runtime.device);
const failureOf = (call) =>
  call().then(
    () => ({ code: "none" }),
    ({ name, code, message }) => ({ name, code, message }),
  );
const failures = await Promise.all([failureOf(() => tensor.data()), failureOf(() => other.data())]);
failures.push(await failureOf(() => tensor.data()));
failures.push(await failureOf(async () => runtime.tensor([1], [1])));
failures.push(await failureOf(() => Runtime.create({ gpu: create([]) })));
runtime.destroy(); // of a module that failed: nothing is thrown, nothing waits
await new Promise((sent) => process.send(failures, sent));
process.exit(0); // Dawn's threads would keep the process alive
