import * as tinyloom from "tinyloom";
import { create } from "webgpu";
import { work } from "./body.js";

console.log(`HOST ${JSON.stringify(await work(tinyloom, { gpu: create([]) }))}`);
process.exit(0); // Dawn's threads would keep the process alive
