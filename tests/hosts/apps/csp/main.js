// The policy allows no import map in the page: the address is the file's.

import { show, work } from "./body.js";
import * as tinyloom from "./node_modules/tinyloom/dist/index.js";

show(work(tinyloom));
