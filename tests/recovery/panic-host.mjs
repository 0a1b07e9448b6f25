// A Node process in which the module panics, and which goes on in a fresh instance.
import * as tinyloom from "tinyloom";
import { create } from "webgpu";
// The very module that the package uses: its link in node_modules leads to pkg.
import * as internal from "../../pkg/dist/internal.js";
import { panicAndGoOn } from "./panic-stage.mjs";

// What the panic throws in a microtask would end the process.
process.on("uncaughtException", () => {});
const told = await panicAndGoOn({ ...tinyloom, internal }, create([]));
await new Promise((sent) => process.send(told, sent));
process.exit(0); // Dawn's threads would keep the process alive
