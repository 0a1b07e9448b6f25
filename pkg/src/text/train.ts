/** `BpeTokenizer.train`: in a worker, or in pieces where none can be opened. */

import { TinyloomError, throwIfAborted } from "../error.js";
import { inFirefoxWorker } from "../firefox.js";
import { inNode, threads } from "../node.js";
import { check, inspect, integer, invalid, type Rules, show } from "../options.js";
import { LONG, report, reported } from "../progress.js";
import type { BpeTokenizer } from "../tokenizer.js";
import { openTrusted } from "../trusted-types-worker.js";
import { judged } from "./formats.js";
import { Learner } from "./learn.js";
import { openText, Pace, paced, textOf } from "./read.js";
import type { FromThread, ToThread } from "./thread.js";
import { isByte, trainedBpe } from "./trained.js";
import type { TrainOptions } from "./types.js";

const WHERE = "BpeTokenizer.train";

const strings = (value: unknown) =>
  Array.isArray(value) &&
  value.length > 0 &&
  value.every((one) => typeof one === "string" && one !== "")
    ? undefined
    : "an array of one or more strings, none of them empty";

const RULES: Rules<TrainOptions> = {
  ...LONG,
  vocabSize: integer(257, 1 << 20),
  specialTokens: strings,
  minFrequency: integer(1),
  chatTemplate: (value) => (typeof value === "string" ? undefined : "a template in Jinja"),
};

/** Characters that are counted between two answers of the worker. */
const PIECE = 1 << 18;

/** Counts words and learns merges, here or elsewhere. */
interface Training {
  add(text: string): Promise<void>;
  flush(): Promise<void>;
  learn(most: number, minFrequency: number, told: (merges: number) => void): Promise<Uint32Array>;
  end(): void;
}

export async function train(text: unknown, given: TrainOptions): Promise<BpeTokenizer> {
  const options = check(WHERE, given, RULES, "vocabSize");
  const { vocabSize, specialTokens = ["<|endoftext|>"], minFrequency = 2 } = options;
  const special = [...new Set(specialTokens)];
  const own = special.filter((one) => !isByte(WHERE, one)).length;
  const most = vocabSize - 256 - own;
  if (most < 1) {
    throw invalid(
      `${WHERE}: vocabSize is ${vocabSize}; 256 bytes and ${own} special tokens leave no room: ` +
        `give at least ${257 + own}`,
    );
  }
  throwIfAborted(options.signal, WHERE);
  const training = (await inThread(special)) ?? inPieces(special);
  const aborted = () => training.end();
  try {
    inspect(WHERE, () => options.signal?.addEventListener("abort", aborted));
    const texts = inspect(WHERE, () => (Array.isArray(text) ? Array.from<unknown>(text) : [text]));
    for (const one of texts) await count(training, one, options);
    const told = (merges: number) => {
      throwIfAborted(options.signal, WHERE);
      report(options, { loaded: merges, total: most, stage: "learn pairs" });
    };
    told(0);
    const merges = await training.learn(most, minFrequency, told);
    throwIfAborted(options.signal, WHERE);
    if (merges.length === 0) {
      throw invalid(`${WHERE}: no pair of bytes occurs ${minFrequency} times; give more text`);
    }
    const learned = merges.length / 2; // a short text has fewer pairs
    report(options, { loaded: learned, total: learned, stage: "learn pairs" });
    await reported(options);
    return trainedBpe(WHERE, merges, special, options.chatTemplate);
  } catch (error) {
    throwIfAborted(options.signal, WHERE);
    throw error;
  } finally {
    training.end();
    options.signal?.removeEventListener("abort", aborted);
  }
}

async function count(training: Training, source: unknown, options: TrainOptions): Promise<void> {
  const opened =
    typeof source === "string"
      ? { name: "", type: "", total: source.length, chunks: cut(source) }
      : await openText(WHERE, source, options.signal);
  const pace = new Pace(WHERE, options, opened.total, "count words");
  const file = { ...opened, chunks: paced(opened.chunks, pace) };
  const { chunks } = await judged(WHERE, file, "text", false);
  let waiting = "";
  for await (const text of textOf(WHERE, chunks)) {
    waiting += text;
    if (waiting.length < PIECE) continue;
    await training.add(waiting);
    waiting = "";
  }
  if (waiting) await training.add(waiting);
  await training.flush();
}

async function* cut(text: string): AsyncGenerator<string> {
  for (let at = 0; at < text.length; at += PIECE) yield text.slice(at, at + PIECE);
}

/** Here, with turns for the page between the pieces of work. */
function inPieces(special: readonly string[]): Training {
  const learner = new Learner(special);
  let ended = false;
  const turn = () => new Promise((next) => setTimeout(next));
  return {
    async add(text) {
      for (let at = 0; at < text.length; at += 1 << 15) {
        learner.add(text.slice(at, at + (1 << 15)));
        await turn();
      }
    },
    flush: async () => learner.flush(),
    async learn(most, minFrequency, told) {
      const work = learner.learn(most, minFrequency);
      let began = performance.now();
      for (;;) {
        const { value, done } = work.next();
        if (done) return value;
        if (ended) throw new TinyloomError("aborted", `${WHERE} was aborted by its signal`);
        if (performance.now() - began < 10) continue;
        told(value);
        await turn();
        began = performance.now();
      }
    },
    end: () => {
      ended = true;
    },
  };
}

/** A worker of the web or of Node, as far as they are alike here. */
interface Thread {
  post(message: ToThread): void;
  end(): void;
}

/** Waits for the next message of a thread, or its failure. */
class Mailbox {
  #waiting:
    | { resolve: (message: FromThread) => void; reject: (error: unknown) => void }
    | undefined;
  #arrived: FromThread[] = [];
  #failed: { error: unknown } | undefined;

  take(message: FromThread): void {
    const waiting = this.#waiting;
    this.#waiting = undefined;
    if (waiting) waiting.resolve(message);
    else this.#arrived.push(message);
  }

  fail(error: unknown): void {
    this.#failed ??= { error };
    this.#waiting?.reject(error);
    this.#waiting = undefined;
  }

  next(): Promise<FromThread> {
    const message = this.#arrived.shift();
    if (message) return Promise.resolve(message);
    if (this.#failed) return Promise.reject(this.#failed.error);
    return new Promise((resolve, reject) => {
      this.#waiting = { resolve, reject };
    });
  }
}

/** Trains in a worker; undefined where none can be opened, as under a policy without `worker-src blob:`. */
async function inThread(special: readonly string[]): Promise<Training | undefined> {
  const mailbox = new Mailbox();
  let thread: Thread | undefined;
  try {
    thread = await openThread(mailbox);
    if (!thread) return undefined;
    await mailbox.next(); // it is ready
  } catch {
    thread?.end();
    return undefined;
  }
  const { post, end } = thread;
  post({ kind: "begin", special });
  return {
    async add(text) {
      post({ kind: "text", text });
      await mailbox.next();
    },
    flush: async () => post({ kind: "flush" }),
    async learn(most, minFrequency, told) {
      post({ kind: "learn", most, minFrequency });
      for (;;) {
        const message = await mailbox.next();
        if (message.kind === "ended") return message.merges;
        if (message.kind === "learned") told(message.merges);
      }
    },
    end: () => {
      mailbox.fail(new TinyloomError("aborted", `${WHERE} was aborted by its signal`));
      end();
    },
  };
}

async function openThread(mailbox: Mailbox): Promise<Thread | undefined> {
  const failed = (event: unknown) => {
    const message = (event as { message?: string } | null)?.message;
    mailbox.fail(new TinyloomError("internal", `the worker of ${WHERE} failed: ${show(message)}`));
  };
  if (inFirefoxWorker()) return undefined;
  if (typeof Worker === "function") {
    const { default: source } = await import("./thread-source.js");
    const url = URL.createObjectURL(new Blob([source], { type: "text/javascript" }));
    let worker: Worker;
    try {
      worker = openTrusted(() => new Worker(url, { type: "module" }));
    } catch (error) {
      URL.revokeObjectURL(url); // the page's policy forbids this worker
      throw error;
    }
    worker.onmessage = ({ data }) => mailbox.take(data as FromThread);
    worker.onerror = failed;
    const end = () => {
      worker.terminate();
      URL.revokeObjectURL(url);
    };
    return { post: (message) => worker.postMessage(message), end };
  }
  if (!inNode()) return undefined;
  const { default: source } = await import("./thread-source.js");
  const { Worker: NodeWorker } = await threads();
  const worker = new NodeWorker(NODE_SCOPE + source, { eval: true });
  worker.on("message", (message) => mailbox.take(message as FromThread));
  worker.on("error", failed);
  return { post: (message) => worker.postMessage(message), end: () => void worker.terminate() };
}

/** What a worker of the web has and a thread of Node lacks. */
const NODE_SCOPE = `const { parentPort } = require("node:worker_threads");
globalThis.postMessage = (message) => parentPort.postMessage(message);
parentPort.on("message", (data) => globalThis.onmessage({ data }));
`;
