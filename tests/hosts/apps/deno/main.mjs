import * as tinyloom from "tinyloom";
import { work } from "./body.js";

console.log(`HOST ${JSON.stringify(await work(tinyloom))}`);
