/**
 * The decoders of tokenizer.json as streams: tokens go in one by one, and text comes out as soon as no further token can
 * change it. `@huggingface/tokenizers` decodes whole lists alone, and others than Python: a run of bytes that is no
 * UTF-8, added tokens, a first `▁`, and contractions differ.
 */

import { corrupt } from "../file-part.js";
import { show } from "../options.js";
import { byteLevelBytes } from "./bpe.js";
import { partsOf, type TokenizerJson, type TokenizerPart } from "./tokenizer-json.js";

/** A decoder at work. What it gives are tokens, or after `Fuse` the parts of one. */
export interface Stage {
  push(token: string): readonly string[];
  end(): readonly string[];
}

type Begin = () => Stage;

/** What begins to decode with a file's decoder; refuses by name what is not computed here. */
export function decodingOf(place: string, { decoder }: TokenizerJson): Begin {
  if (!decoder) return () => numbered((token, at) => (at === 0 ? token : ` ${token}`));
  const begins = chain(place, partsOf(decoder, "decoders"), false);
  return () => chained(begins.map((begin) => begin()));
}

/** @param fused - whether the tokens before are one token in parts. */
function chain(place: string, parts: readonly TokenizerPart[], fused: boolean): Begin[] {
  const begins: Begin[] = [];
  let one = fused;
  for (const [at, part] of parts.entries()) {
    const begin = stageOf(place, part, one);
    if (!begin) {
      // What looks at a whole token waits for its end.
      const rest = chain(place, parts.slice(at), false);
      begins.push(() => whole(chained(rest.map((next) => next()))));
      return begins;
    }
    begins.push(begin);
    one ||= part.type === "Fuse" || part.type === "ByteLevel";
  }
  return begins;
}

/** Undefined for a decoder that cannot take one token in parts. */
function stageOf(place: string, part: TokenizerPart, fused: boolean): Begin | undefined {
  const text = (name: string) => textOf(place, part, name);
  switch (part?.type) {
    case "Fuse":
      return () => mapped((token) => token);
    case "Strip":
      return stripOf(place, part, fused);
    case "ByteLevel":
      return fused ? undefined : byteLevel;
    case "ByteFallback":
      return fused ? undefined : byteFallback;
    case "Replace": {
      const [from, to] = [patternOf(place, part), text("content")];
      return fused ? undefined : () => mapped((token) => token.replaceAll(from, () => to));
    }
    case "Metaspace": {
      const [mark, first] = [part["replacement"] ?? "▁", part["prepend_scheme"] !== "never"];
      if (typeof mark !== "string" || !mark) throw wrong(place, part, "replacement");
      const begin = () =>
        numbered((token, at) => token.replaceAll(mark, at === 0 && first ? "" : " "));
      return fused ? undefined : begin;
    }
    case "WordPiece": {
      const [prefix, cleanup] = [text("prefix"), part["cleanup"] === true];
      return fused ? undefined : () => wordPiece(prefix, cleanup);
    }
    case "BPEDecoder": {
      const suffix = text("suffix");
      return fused ? undefined : () => withSuffix(suffix);
    }
    case "CTC": {
      const [pad, space] = [text("pad_token"), text("word_delimiter_token")];
      return fused ? undefined : () => ctc(pad, space, part["cleanup"] === true);
    }
    default:
      throw wrong(place, part, "type");
  }
}

function textOf(place: string, part: TokenizerPart, name: string): string {
  const value: unknown = part[name];
  if (typeof value === "string") return value;
  throw wrong(place, part, name);
}

function patternOf(place: string, part: TokenizerPart): string {
  const { String: text } = Object(part["pattern"]) as { String?: unknown };
  if (typeof text === "string" && text) return text;
  throw wrong(place, part, "pattern");
}

const wrong = (place: string, part: TokenizerPart | null, name: string) =>
  corrupt(
    `${place}: ${name} of the decoder ${show(part?.type)} is ${show(JSON.stringify(part?.[name]) ?? part?.[name])}, ` +
      "which is not computed here",
  );

/** Several decoders, one after the other. */
function chained(stages: readonly Stage[]): Stage {
  const through = (tokens: readonly string[], from: number) => {
    let now = tokens;
    for (const stage of stages.slice(from)) now = now.flatMap((token) => stage.push(token));
    return now;
  };
  return {
    push: (token) => through([token], 0),
    end: () => stages.flatMap((stage, at) => through(stage.end(), at + 1)),
  };
}

const mapped = (change: (token: string) => string): Stage => ({
  push: (token) => [change(token)],
  end: () => [],
});

function numbered(change: (token: string, at: number) => string): Stage {
  let at = 0;
  return mapped((token) => change(token, at++));
}

/** Gives a decoder one token, which comes in parts, at its end. */
function whole(stage: Stage): Stage {
  const parts: string[] = [];
  return {
    push: (part) => {
      parts.push(part);
      return [];
    },
    end: () => [...stage.push(parts.join("")), ...stage.end()],
  };
}

/** Bytes by their characters. A token with another character stands for itself. */
function byteLevel(): Stage {
  const decoder = new TextDecoder("utf-8", { ignoreBOM: true });
  return {
    push: (token) => [decoder.decode(byteLevelBytes(token), { stream: true })],
    end: () => [decoder.decode()],
  };
}

/** The byte that a token such as `<0x0A>` stands for. */
export function byteOf(token: string): number | undefined {
  const byte = /^<0x([0-9A-Fa-f]{2})>$/.exec(token)?.[1];
  return byte === undefined ? undefined : Number.parseInt(byte, 16);
}

/** A run of bytes is text once it has ended; one that is no UTF-8 is a U+FFFD for each byte. */
function byteFallback(): Stage {
  let run: number[] = [];
  const decoder = new TextDecoder("utf-8", { ignoreBOM: true, fatal: true });
  const end = () => {
    const bytes = run;
    run = [];
    if (bytes.length === 0) return [];
    try {
      return [decoder.decode(Uint8Array.from(bytes))];
    } catch {
      return bytes.map(() => "\ufffd");
    }
  };
  const push = (token: string) => {
    const byte = byteOf(token);
    if (byte === undefined) return [...end(), token];
    run.push(byte);
    return [];
  };
  return { push, end };
}

function stripOf(place: string, part: TokenizerPart, fused: boolean): Begin | undefined {
  const content = textOf(place, part, "content");
  if (Array.from(content).length !== 1) throw wrong(place, part, "content");
  for (const name of ["start", "stop"]) {
    if (!Number.isSafeInteger(part[name]) || (part[name] as number) < 0) {
      throw wrong(place, part, name);
    }
  }
  const [start, stop] = [part["start"] as number, part["stop"] as number];
  if (fused && stop > 0) return undefined;
  return () => {
    let left = start;
    return mapped((token) => {
      if (!fused) left = start;
      let [begin, end] = [0, token.length];
      for (; left > 0 && token.startsWith(content, begin); left--) begin += content.length;
      if (begin < end) left = 0;
      for (let n = 0; n < stop && token.slice(begin, end).endsWith(content); n++) {
        end -= content.length;
      }
      return token.slice(begin, end);
    });
  };
}

function wordPiece(prefix: string, cleanup: boolean): Stage {
  return numbered((token, at) => {
    const own =
      at === 0 ? token : token.startsWith(prefix) ? token.slice(prefix.length) : ` ${token}`;
    return cleanup ? cleaned(own) : own;
  });
}

/** Pairs of texts, in the order in which Hugging Face's tokenizers replace them. */
const CLEANED = [
  [" .", "."],
  [" ?", "?"],
  [" !", "!"],
  [" ,", ","],
  [" ' ", "'"],
  [" n't", "n't"],
  [" 'm", "'m"],
  [" do not", " don't"],
  [" 's", "'s"],
  [" 've", "'ve"],
  [" 're", "'re"],
] as const;

const cleaned = (text: string) =>
  CLEANED.reduce((now, [from, to]) => now.replaceAll(from, to), text);

/** The suffix ends words: it is a space, except after the last token. */
function withSuffix(suffix: string): Stage {
  let held: string | undefined;
  const given = (space: string) =>
    held === undefined ? [] : [held.replaceAll(suffix, () => space)];
  const push = (token: string) => {
    const before = given(" ");
    held = token;
    return before;
  };
  return { push, end: () => given("") };
}

function ctc(pad: string, space: string, cleanup: boolean): Stage {
  let before: string | undefined;
  const push = (token: string) => {
    if (token === before) return [];
    before = token;
    const own = token.replaceAll(pad, "");
    const text = cleanup ? cleaned(own).replaceAll(space, " ") : own;
    return text ? [text] : [];
  };
  return { push, end: () => [] };
}
