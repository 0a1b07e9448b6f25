// A Node process with Dawn whose address space its parent limits: `{ piece, most }` in, what came of it out.
import { create } from "webgpu";
import * as tinyloom from "../../pkg/dist/index.js";
import * as internal from "../../pkg/dist/internal.js";
import { exhaust } from "./memory-stage.mjs";

process.once("message", async (task) => {
  const limit = async () => {
    const limited = new Promise((done) => process.once("message", done));
    process.send("limit");
    await limited;
  };
  const found = await exhaust({
    tinyloom: { ...tinyloom, internal },
    gpu: create([]),
    limit,
    ...task,
  });
  await new Promise((sent) => process.send(found, sent));
  process.exit(0); // Dawn's threads would keep the process alive
});
