import * as tinyloom from "tinyloom";
import * as storage from "tinyloom/storage";
import { create } from "webgpu";
import { work } from "./body.js";
import { stored } from "./stored.js";

const gpu = create([]);
const outcome = await work(tinyloom, { gpu });
const kept = await stored(tinyloom, storage, { gpu });
console.log(`HOST ${JSON.stringify({ ...outcome, stored: kept })}`);
process.exit(0); // Dawn's threads would keep the process alive
