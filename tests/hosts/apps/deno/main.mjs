import * as tinyloom from "tinyloom";
import * as storage from "tinyloom/storage";
import { work } from "./body.js";
import { stored } from "./stored.js";

const outcome = await work(tinyloom);
console.log(`HOST ${JSON.stringify({ ...outcome, stored: await stored(tinyloom, storage) })}`);
