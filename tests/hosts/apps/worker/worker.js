// Import maps do not reach workers: the address is the file's.

import { work } from "./body.js";
import * as tinyloom from "./node_modules/tinyloom/dist/index.js";

work(tinyloom).then(postMessage, ({ code, message }) => postMessage({ code, message }));
