/** A text as a trainer and a model see it: its tokens, and how they become text again. */
import library from "@huggingface/tokenizers?url";
import { ByteTokenizer, type Dataset, type Tokenizer } from "tinyloom/worker";
import type { Lab } from "./lab.ts";
import { ByteStream, type Decoder } from "./sample.ts";
import { type RunSettings, validationFraction } from "./settings.ts";
import type { Text } from "./text.ts";

/** The part of the validation split that the curve uses, in steps' worth of tokens. */
const PROBE_STEPS = 4;
/** Bytes of text that a token of a learned tokenizer stands for, at most. */
const TOKEN_BYTES = 8;

/** How text becomes tokens, and tokens text. */
export interface Codec {
  /** Its tokenizer.json; undefined where bytes are the tokens. */
  readonly json: string | undefined;
  readonly tokenizer: ByteTokenizer | Tokenizer;
  encode(text: string): Promise<Uint32Array>;
  decoder(): Promise<Decoder>;
}

/** Bytes as tokens, or the tokenizer of a tokenizer.json. */
export async function codecOf(lab: Lab, json?: string): Promise<Codec> {
  if (json === undefined) {
    const tokenizer = new ByteTokenizer();
    return {
      json,
      tokenizer,
      encode: async (text) => tokenizer.encode(text),
      decoder: async () => new ByteStream(),
    };
  }
  const files = { "tokenizer.json": new Blob([json]) };
  // The worker knows no package by its name, so it gets the address of the one that reads other tokenizers.
  const tokenizer = await lab.Tokenizer.fromPretrained(files, { library });
  return {
    json,
    tokenizer,
    encode: (text) => tokenizer.encode(text),
    decoder: () => tokenizer.decoder(),
  };
}

/** The datasets of a text. */
export interface Data {
  readonly codec: Codec;
  readonly dataset: Dataset;
  /** The last part of the validation split, for the curve. */
  readonly probe: Dataset;
}

/** Loads a text in the worker. */
export async function loadData(
  lab: Lab,
  { sequenceLength, tokensPerStep, seed }: RunSettings,
  { bytes }: Text,
  codec: Codec,
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
  return { codec, dataset, probe: await load(bytes.slice(-2 * kept), 0.5) };
}

export async function freeData({ dataset, probe }: Data): Promise<void> {
  await dataset.free();
  await probe.free();
}
