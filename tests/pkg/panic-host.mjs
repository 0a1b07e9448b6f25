// A Node process in which the module panics: Dawn's answer to an empty error scope is none that wgpu
// knows, at which it gives up.
import { Runtime } from "tinyloom";
import { create } from "webgpu";

// What the panic throws in a microtask would end the process.
process.on("uncaughtException", () => {});
const runtime = await Runtime.create({ gpu: create([]) });
const tensor = runtime.tensor([1, 2], [2]);
const { device } = runtime;
const push = device.pushErrorScope.bind(device);
const pop = device.popErrorScope.bind(device);
let open = 0;
let deepest = 0;
device.pushErrorScope = (filter) => {
  if (open === 0) deepest = 0;
  open += 1;
  deepest = Math.max(deepest, open);
  push(filter);
};
device.popErrorScope = () => {
  open -= 1;
  const answer = pop();
  return deepest === 1 ? answer.then(() => ({ message: "of no known kind" })) : answer;
};
// The module sends empty scopes while it waits for bytes.
const { createBuffer } = device;
device.createBuffer = (descriptor) => {
  const buffer = createBuffer.call(device, descriptor);
  const map = buffer.mapAsync.bind(buffer);
  buffer.mapAsync = (...range) =>
    new Promise((later) => setTimeout(later, 100)).then(() => map(...range));
  return buffer;
};
const failure = await tensor.data().then(
  () => ({ code: "none" }),
  ({ name, code, message }) => ({ name, code, message }),
);
await new Promise((sent) => process.send(failure, sent));
process.exit(0); // Dawn's threads would keep the process alive
