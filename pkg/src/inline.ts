/**
 * What `tinyloom` exports, with the wasm module's bytes in the JavaScript: for hosts that move or block
 * the module's file, and for service workers. The file is never asked for.
 *
 * @packageDocumentation
 */

import { carry } from "./module.js";
import packed from "./packed.js";

carry(packed);

export * from "./index.js";
