/**
 * What `tinyloom` exports, with the wasm module's bytes in the JavaScript: for hosts that move or block
 * the module's file, and for service workers. The file is never asked for.
 *
 * @packageDocumentation
 */

import * as deferred from "./deferred.js";
import * as gguf from "./gguf/index.js";
import { carryParts } from "./lazy.js";
import packed from "./packed.js";
import * as text from "./text/index.js";
import * as tokenizers from "./text/tokenizers.js";
import { carry } from "./wasm-compile.js";

carry(packed);
carryParts({ text, tokenizers, deferred, gguf });

export * from "./index.js";
