// Tokenizers for the models that are saved for llama.cpp.
import { TEXTS } from "./models.mjs";

const LLAMA3 = String.raw`(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+`;
const QWEN2 = LLAMA3.replace("{1,3}", "");

const json = (bytes) => JSON.parse(new TextDecoder().decode(bytes));
const bytes = (value) => new TextEncoder().encode(JSON.stringify(value));

/** The files of a trained tokenizer, which splits texts by an expression and puts a token before them. */
function split(files, Regex, more = {}) {
  const tokenizer = json(files["tokenizer.json"]);
  const byteLevel = {
    type: "ByteLevel",
    add_prefix_space: false,
    trim_offsets: true,
    use_regex: false,
  };
  const pretokenizers = [
    { type: "Split", pattern: { Regex }, behavior: "Isolated", invert: false },
    byteLevel,
  ];
  Object.assign(tokenizer, { pre_tokenizer: { type: "Sequence", pretokenizers }, ...more });
  if (Regex === LLAMA3) {
    tokenizer.model.ignore_merges = true;
    tokenizer.post_processor = {
      type: "TemplateProcessing",
      single: [
        { SpecialToken: { id: "<|begin|>", type_id: 0 } },
        { Sequence: { id: "A", type_id: 0 } },
      ],
      pair: [],
      special_tokens: {
        "<|begin|>": {
          id: "<|begin|>",
          ids: [tokenizer.added_tokens[1].id],
          tokens: ["<|begin|>"],
        },
      },
    };
  }
  return { ...files, "tokenizer.json": bytes(tokenizer) };
}

/**
 * GPT-NeoX's: words as GPT-2's, composed characters, and runs of spaces as added tokens.
 */
function withSpaces(files) {
  const tokenizer = json(files["tokenizer.json"]);
  tokenizer.normalizer = { type: "NFC" };
  const taken = [
    ...Object.values(tokenizer.model.vocab),
    ...tokenizer.added_tokens.map(({ id }) => id),
  ];
  const next = Math.max(...taken) + 1;
  for (const [at, content] of ["   ", "  "].entries()) {
    const added = { id: next + at, content, special: false, normalized: true };
    tokenizer.added_tokens.push({ ...added, single_word: false, lstrip: false, rstrip: false });
  }
  return { ...files, "tokenizer.json": bytes(tokenizer) };
}

/** The same as {@link withScores} makes, changed to Gemma's: no space before a text, runs of spaces as own tokens. */
function asGemma(files) {
  const tokenizer = json(files["tokenizer.json"]);
  tokenizer.normalizer = { type: "Replace", pattern: { String: " " }, content: "▁" };
  tokenizer.pre_tokenizer = {
    type: "Split",
    pattern: { String: " " },
    behavior: "MergedWithPrevious",
    invert: false,
  };
  tokenizer.model.merges.unshift(["▁", "▁"], ["▁▁", "▁"]);
  tokenizer.decoder.decoders.pop(); // the one that takes the first space away
  return { ...files, "tokenizer.json": bytes(tokenizer) };
}

/**
 * All files of a tokenizer with byte fallback, as transformers and SentencePiece have it.
 *
 * @param own - pieces of the user's.
 */
function withScores(own = []) {
  const pieces = ["<unk>", "<s>", "</s>"].map((text, at) => ({ text, score: 0, type: at ? 3 : 2 }));
  pieces.push(...own.map((text) => ({ text, score: 0, type: 4 })));
  for (let byte = 0; byte < 256; byte++) {
    const hex = byte.toString(16).toUpperCase().padStart(2, "0");
    pieces.push({ text: `<0x${hex}>`, score: 0, type: 6 });
  }
  const learned = learnedPairs(` ${TEXTS.join(" ")}`.replaceAll(" ", "▁"), 90);
  const merged = learned.merged.filter((text) => !own.includes(text));
  pieces.push(...merged.map((text, at) => ({ text, score: -at, type: 1 })));
  // Characters come last, and the rarest, 🧵, is left to bytes.
  for (const text of learned.characters) pieces.push({ text, score: -1000, type: 1 });
  const vocab = Object.fromEntries(pieces.map(({ text }, id) => [text, id]));
  const added = ({ text: content, type }, id) => ({
    id,
    content,
    special: type !== 4 || content.startsWith("<"),
    normalized: false,
  });
  const put = (id) => ({ SpecialToken: { id, type_id: 0 } });
  const tokenizer = {
    version: "1.0",
    added_tokens: pieces.slice(0, 3 + own.length).map(added),
    normalizer: {
      type: "Sequence",
      normalizers: [
        { type: "Prepend", prepend: "▁" },
        { type: "Replace", pattern: { String: " " }, content: "▁" },
      ],
    },
    pre_tokenizer: null,
    post_processor: {
      type: "TemplateProcessing",
      single: [put("<s>"), { Sequence: { id: "A", type_id: 0 } }],
      pair: [],
      special_tokens: { "<s>": { id: "<s>", ids: [1], tokens: ["<s>"] } },
    },
    decoder: {
      type: "Sequence",
      decoders: [
        { type: "Replace", pattern: { String: "▁" }, content: " " },
        { type: "ByteFallback" },
        { type: "Fuse" },
        { type: "Strip", content: " ", start: 1, stop: 0 },
      ],
    },
    model: {
      type: "BPE",
      unk_token: "<unk>",
      fuse_unk: true,
      byte_fallback: true,
      ignore_merges: false,
      vocab,
      merges: learned.pairs,
    },
  };
  return {
    "tokenizer.json": bytes(tokenizer),
    "tokenizer_config.json": bytes({ bos_token: "<s>", eos_token: "</s>", unk_token: "<unk>" }),
    "tokenizer.model": modelFile(pieces),
  };
}

/** The pairs of a text that occur most often, one after the other. */
function learnedPairs(text, count) {
  let words = text.split(/(?=▁)/).map((word) => [...word]);
  const characters = [...new Set(words.flat())].filter((one) => one !== "🧵");
  const [pairs, merged] = [[], []];
  while (pairs.length < count) {
    const counts = new Map();
    for (const word of words) {
      for (let at = 1; at < word.length; at++) {
        const pair = `${word[at - 1]} ${word[at]}`;
        counts.set(pair, (counts.get(pair) ?? 0) + 1);
      }
    }
    const [best] = [...counts].reduce((a, b) => (b[1] > a[1] ? b : a));
    const [left, right] = best.split(" ");
    if (!merged.includes(left + right)) merged.push(left + right);
    pairs.push([left, right]);
    words = words.map((word) => {
      const joined = [];
      for (const part of word) {
        if (joined.at(-1) === left && part === right) joined[joined.length - 1] = left + right;
        else joined.push(part);
      }
      return joined;
    });
  }
  return { characters, pairs, merged };
}

/** SentencePiece's file: each token as field 1, and the kind of the model, byte-pair encoding, in field 2. */
function modelFile(pieces) {
  const field = (number, content) => [number * 8 + 2, ...varint(content.length), ...content];
  const all = pieces.flatMap(({ text, score, type }) => {
    const number = new Uint8Array(new Float32Array([score]).buffer);
    return field(1, [
      ...field(1, [...new TextEncoder().encode(text)]),
      0x15,
      ...number,
      0x18,
      type,
    ]);
  });
  return Uint8Array.from([...all, ...field(2, [0x18, 2])]);
}

const varint = (value) => (value < 128 ? [value] : [(value % 128) + 128, ...varint(value >> 7)]);

/**
 * A tokenizer by its name in `MODELS`, and what `save` is given of it.
 *
 * @returns `{ tokenizer, given }`.
 */
export async function makeTokenizer({ BpeTokenizer, ByteTokenizer, Tokenizer }, name) {
  if (name === "bytes") {
    const tokenizer = new ByteTokenizer();
    return { tokenizer, given: tokenizer };
  }
  const loaded = async (files) => ({
    tokenizer: await Tokenizer.fromPretrained(files),
    given: files,
  });
  if (name === "scores") return loaded(withScores());
  if (name === "gemma") return loaded(asGemma(withScores(["<turn>", "\n\n", "▁▁", "▁▁▁"])));
  const specialTokens = ["<|end|>", "<|begin|>"];
  const trained = await BpeTokenizer.train(TEXTS.join(" ").repeat(3), {
    vocabSize: 350,
    specialTokens,
  });
  if (name === "trained") return { tokenizer: trained, given: trained };
  if (name === "neox") return loaded(withSpaces(trained.save()));
  const nfc = { normalizer: { type: "NFC" } };
  return loaded(
    name === "llama3" ? split(trained.save(), LLAMA3) : split(trained.save(), QWEN2, nfc),
  );
}
