/**
 * The same API with everything in a dedicated worker, so that training never holds up the page. Importing
 * this module opens no worker.
 *
 * @example
 * ```ts
 * import { connect } from "tinyloom/worker";
 *
 * const { Runtime, Model } = await connect();
 * const runtime = await Runtime.create();
 * ```
 *
 * @module tinyloom/worker
 */

export { TinyloomError } from "../error.js";
export type * from "../index.js";
export { ByteTokenizer } from "../tokenizer.js";
export { IGNORE_INDEX } from "../tokens.js";
export { type ConnectOptions, connect } from "./connect.js";
export type { WorkerLike } from "./open.js";
export { transfer } from "./pack.js";
export { serve } from "./serve.js";
export type {
  Adapter,
  BpeTokenizer,
  Connected,
  Dataset,
  Model,
  Remote,
  RemoteClass,
  RemoteExports,
  RemoteMethod,
  Runs,
  Runtime,
  StoredRun,
  Tensor,
  Tokenizer,
  Trainer,
} from "./types.js";
