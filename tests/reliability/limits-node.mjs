// A Node process with Dawn that runs cells of the sweep over limits: what the adapter has out, `{ cells }` in, a row for
// each out.
import { create } from "webgpu";
import * as tinyloom from "../../pkg/dist/index.js";
import * as internal from "../../pkg/dist/internal.js";
import { Sweep } from "./limits-cell.mjs";

const gpu = create([]);
const sweep = new Sweep({ ...tinyloom, internal }, gpu);
const send = (message) => new Promise((sent) => process.send(message, sent));
const asked = new Promise((done) => process.once("message", done));
await send({ capabilities: await sweep.open() });
const { cells } = await asked;
for (const cell of cells) await send({ row: await sweep.run(cell) });
process.exit(0); // Dawn's threads would keep the process alive
