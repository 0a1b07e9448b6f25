// A Node process with Dawn in which devices are destroyed: it is asked by message.
import { create, globals } from "webgpu";
import * as tinyloom from "../../pkg/dist/index.js";
import * as internal from "../../pkg/dist/internal.js";
import { Stage } from "./lost-stage.mjs";

Object.assign(globalThis, globals);
let stage;

async function answer({ parts, operation, part }) {
  if (operation) return stage.attempt(operation, () => stage.runtime.device.destroy(), part);
  const gpu = create([]);
  stage = new Stage({ ...tinyloom, internal }, parts);
  const opened = await stage.open(gpu);
  return { ...opened, operations: Object.keys(stage.expected) };
}

process.on("message", (question) => {
  answer(question).then(
    (told) => process.send(told),
    (error) => {
      throw error;
    },
  );
});
