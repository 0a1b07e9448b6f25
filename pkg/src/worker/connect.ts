import { TinyloomError } from "../error.js";
import { check, invalid, type Rules } from "../options.js";
import { Connection } from "./connection.js";
import {
  bothFailed,
  join,
  type OwnWorker,
  openCopy,
  openWorker,
  unavailable,
  type WorkerLike,
  watchPolicy,
} from "./open.js";
import type { Connected, RemoteExports } from "./types.js";
import { PAGE } from "./wire.js";

/** Options of {@link connect}. */
export interface ConnectOptions {
  /**
   * A worker of your own, whose file calls {@link serve}; in Node one of `node:worker_threads`. Default: the
   * package's own, which is opened for this connection alone.
   */
  worker?: WorkerLike;
}

const RULES: Rules<ConnectOptions> = {
  worker: (value) =>
    typeof (value as Partial<WorkerLike> | null)?.postMessage === "function"
      ? undefined
      : "a Worker",
};

/** How long a worker of the user's may take to answer, in milliseconds. */
const PATIENCE = 60_000;

/** What stays in the worker, with `tinyloom/ops`. */
const OPERATIONS = ["attention", "softmax"];

/**
 * Opens a worker that has the whole API, and gives the same classes here. What they make lives in the
 * worker: methods give promises, properties are read as usual. Where the worker's file does not answer, a copy
 * of it is imported as JavaScript, which opens as a `blob:` address.
 *
 * @typeParam Extra - what the worker's {@link serve} adds, as `typeof` of that object.
 * @throws {@link TinyloomError} `worker-unavailable` where no worker can be opened or it does not answer,
 * `content-security` where the page's policy forbids it, `invalid-options`.
 *
 * @example
 * ```ts
 * const { Runtime, Model, Trainer, Dataset, ByteTokenizer, close } = await connect();
 * const runtime = await Runtime.create();
 * const model = await Model.create(runtime, { hidden_size: 64, num_attention_heads: 2 });
 * console.log(model.parameterCount);
 * await close();
 * ```
 */
export async function connect<Extra extends object = object>(
  options: ConnectOptions = {},
): Promise<Connected & RemoteExports<Extra>> {
  const { worker: given } = check<ConnectOptions>("connect", options, RULES);
  const exports = given ? await open(given) : await openOwn();
  return exports as unknown as Connected & RemoteExports<Extra>;
}

/** Opens the package's own worker: from its file, or from the copy where that does not answer. */
async function openOwn(): Promise<Record<string, unknown>> {
  const page = watchPolicy();
  try {
    let fileError: unknown;
    try {
      const worker = await openWorker();
      return await open(worker, worker);
    } catch (error) {
      const refused = error instanceof TinyloomError && error.code === "worker-unavailable";
      if (!refused || typeof Worker !== "function") throw error;
      fileError = error;
    }
    try {
      const copy = await openCopy();
      return await open(copy, copy);
    } catch (copyError) {
      await new Promise((turn) => setTimeout(turn, 50)); // the policy's refusal may be told after the error
      throw bothFailed(fileError, copyError, page.refused());
    }
  } finally {
    page.stop();
  }
}

/**
 * Connects to a worker.
 *
 * @param own - the same, where it was opened here and ends with the connection.
 */
async function open(worker: WorkerLike, own?: OwnWorker): Promise<Record<string, unknown>> {
  const { port1, port2 } = new MessageChannel();
  const connection = new Connection(port1);
  let opened = false;
  const close = async () => {
    connection.end(new TinyloomError("freed", "the connection to the worker was closed"));
    await own?.terminate();
  };
  join(worker, port2, (error, ended) => {
    if (ended || !opened) connection.end(error);
  });
  const timer = own ? undefined : setTimeout(() => connection.end(silent()), PATIENCE);
  try {
    const exports = await connection.open();
    opened = true;
    return withOperations({ ...PAGE, ...exports, close });
  } catch (error) {
    await close();
    throw error;
  } finally {
    clearTimeout(timer);
  }
}

function silent(): TinyloomError {
  return unavailable(
    `the worker given to connect() has not answered for ${PATIENCE / 1000} s; its file has to call serve() ` +
      'from "tinyloom/worker" before its first await',
  );
}

/** Says of what is not here why, when it is used. */
function withOperations(exports: Record<string, unknown>): Record<string, unknown> {
  for (const name of OPERATIONS.filter((one) => !(one in exports))) {
    const get = () => {
      throw invalid(
        `${name} of tinyloom/ops stays in the worker, with the GPU; call it in a worker of your own, and ` +
          "give that to connect({ worker })",
      );
    };
    Object.defineProperty(exports, name, { get, enumerable: false });
  }
  return exports;
}
