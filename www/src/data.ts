/** A text as a trainer and a model see it: its tokens, and how they become text again. */
import library from "@huggingface/tokenizers?url";
import {
  ByteTokenizer,
  type CheckpointSource,
  type Dataset,
  type LoadOptions,
  type Tokenizer,
} from "tinyloom/worker";
import type { Lab } from "./lab.ts";
import { entropyOf } from "./letters.ts";
import { ByteStream, type Decoder } from "./sample.ts";
import { type RunSettings, validationFraction } from "./settings.ts";
import { tasks } from "./tasks/index.ts";
import { END, EXAM, HELD_OUT, type Problem, readProblems } from "./tasks/task.ts";
import type { Text } from "./text.ts";

/** The part of the validation split that the curve uses, in steps' worth of tokens. */
const PROBE_STEPS = 4;
/** Bytes of text that a token of a learned tokenizer stands for, at most. */
const TOKEN_BYTES = 8;

/** How text becomes tokens, and tokens text. */
export interface Codec {
  readonly tokenizer: ByteTokenizer | Tokenizer;
  /** The template of chats, in Jinja, where the tokenizer has one. */
  readonly template?: string | undefined;
  /** The id that ends a text, where the tokenizer names one. */
  readonly endToken?: number | undefined;
  encode(text: string): Promise<Uint32Array>;
  decoder(): Promise<Decoder>;
  /** What a token is called by itself. */
  name(token: number): Promise<string>;
}

/** That of a run, which keeps its tokenizer. */
export interface KeptCodec extends Codec {
  /** Its tokenizer.json; undefined where bytes are the tokens. */
  readonly json: string | undefined;
}

/** Files that say more of a tokenizer. */
const ABOUT = [
  "tokenizer_config.json",
  "special_tokens_map.json",
  "chat_template.jinja",
  "chat_template.json",
];

/**
 * Bytes as tokens, or the tokenizer of a tokenizer.json.
 *
 * @param folder - the files beside it, where there are some.
 */
export async function codecOf(
  lab: Lab,
  json?: string,
  folder: { readonly [name: string]: Blob } = {},
): Promise<KeptCodec> {
  if (json === undefined) {
    const tokenizer = new ByteTokenizer();
    return {
      json,
      tokenizer,
      encode: async (text) => tokenizer.encode(text),
      decoder: async () => new ByteStream(),
      name: async (token) => byteName(token),
    };
  }
  const beside = ABOUT.flatMap((name) => (folder[name] ? [[name, folder[name]] as const] : []));
  const files = { "tokenizer.json": new Blob([json]), ...Object.fromEntries(beside) };
  return { json, ...(await wordsOf(lab, files)) };
}

/** The tokenizer of a checkpoint. */
export async function wordsOf(
  lab: Lab,
  source: CheckpointSource,
  long: LoadOptions = {},
): Promise<Codec> {
  // The worker knows no package by its name, so it gets the address of the one that reads other tokenizers.
  const tokenizer = await lab.Tokenizer.fromPretrained(source, { library, ...long });
  const names = new Map<number, string>();
  return {
    tokenizer,
    template: tokenizer.chatTemplate,
    endToken: tokenizer.endToken,
    encode: (text) => tokenizer.encode(text),
    decoder: () => tokenizer.decoder(),
    async name(token) {
      const known = names.get(token) ?? nameOf(await tokenizer.decode([token]), token);
      names.set(token, known);
      return known;
    },
  };
}

/** A token's text with its white space visible; its number where it has none of its own. */
function nameOf(text: string, token: number): string {
  if (text === " ") return "space";
  if (text === "\n") return "line break";
  const printable = text !== "" && !/[\p{C}\ufffd]/u.test(text);
  return printable ? text : `number ${token}`;
}

/** A byte that is no letter by itself. */
const byteName = (token: number): string =>
  token < 128
    ? nameOf(String.fromCharCode(token), token).replace("number", "byte")
    : `byte ${token}`;

/** The datasets of a text. */
export interface Data {
  readonly codec: KeptCodec;
  readonly dataset: Dataset;
  /** The last part of the validation split, for the curve. */
  readonly probe: Dataset;
  /** The loss of guessing by how often each letter occurs, where letters are the tokens. */
  readonly letters?: number | undefined;
  /** Problems of the validation split, for the exam. */
  readonly exam?: readonly Problem[];
  /** The last tokens of the validation split, for the share of right guesses. */
  readonly tail?: Uint32Array;
}

/** Loads a text in the worker. */
export async function loadData(
  lab: Lab,
  settings: RunSettings,
  text: Text,
  codec: KeptCodec,
): Promise<Data> {
  return text.task && codec.json === undefined
    ? loadProblems(lab, settings, text, codec)
    : loadText(lab, settings, text, codec);
}

async function loadText(
  lab: Lab,
  { sequenceLength, tokensPerStep, seed }: RunSettings,
  { bytes, judge }: Text,
  codec: KeptCodec,
): Promise<Data> {
  const split = Math.floor(bytes.size * validationFraction);
  const wanted = Math.max(PROBE_STEPS * tokensPerStep, sequenceLength + 1);
  const kept = Math.min(split, codec.json === undefined ? wanted : wanted * TOKEN_BYTES);
  const load = (part: Blob, fraction: number) =>
    lab.Dataset.fromText(part, codec.tokenizer, {
      sequenceLength,
      validationFraction: fraction,
      seed,
    });
  const dataset = await load(bytes, validationFraction);
  const probe = await load(bytes.slice(-2 * kept), 0.5);
  const letters = codec.json === undefined ? await entropyOf(bytes) : undefined;
  // Sentences of the stories are counted instead.
  if (judge) return { codec, dataset, probe, letters };
  const tail = await codec.encode(await bytes.slice(-kept).text());
  return { codec, dataset, probe, letters, tail };
}

/** Each problem is a document. Only its answer is learned. */
async function loadProblems(
  lab: Lab,
  { seed }: RunSettings,
  { bytes, task }: Text,
  codec: KeptCodec,
): Promise<Data> {
  const problems = readProblems(tasks[task!], await bytes.text());
  // The page gets its turn before these many objects go to the worker.
  await new Promise((turn) => setTimeout(turn));
  const load = (part: readonly Problem[], validation: number) =>
    lab.Dataset.fromDocuments(part, codec.tokenizer, {
      endToken: END,
      validationFraction: validation,
      seed,
    });
  const dataset = await load(problems, HELD_OUT);
  const learned = problems.map(({ completion }) => completion + String.fromCharCode(END));
  const heldOut = problems.slice(dataset.documents);
  return {
    codec,
    dataset,
    probe: await load([...heldOut, ...heldOut], 0.5),
    letters: await entropyOf(new Blob(learned)),
    exam: heldOut.slice(-EXAM),
  };
}

export async function freeData({ dataset, probe }: Data): Promise<void> {
  await dataset.free();
  await probe.free();
}
