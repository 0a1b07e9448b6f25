// A Node process with Dawn in which devices are lost for good: it is asked by message.
import { create, globals } from "webgpu";
import * as tinyloom from "../../pkg/dist/index.js";
import { lose } from "./losses-stage.mjs";

Object.assign(globalThis, globals);
const gpu = create([]);

process.on("message", (asked) => {
  lose({ tinyloom, gpu, ...asked }).then(
    (told) => process.send(told),
    (error) => {
      throw error;
    },
  );
});
