// Small tokenizers of both spellings: byte-level BPE, and SentencePiece with ▁ for spaces.
import { json, tinyloom } from "./kit.mjs";

export const story = "the world is wide, the word is wild. hello wonderful worlds of words! ";

export const template =
  "{% for message in messages %}<|start|>{{ message.role }}\n{{ message.content }}<|end|>\n{% endfor %}" +
  "{% if add_generation_prompt %}<|start|>assistant\n{% endif %}";

/** Byte-level BPE, trained on the story: it knows whole words with the space before them. */
export const byteLevel = await tinyloom.BpeTokenizer.train(story.repeat(20), {
  vocabSize: 320,
  specialTokens: ["<|end|>", "<|start|>"],
  chatTemplate: template,
});

const words = [
  "▁the",
  "▁wor",
  "▁world",
  "▁word",
  "▁words",
  "▁w",
  "▁hello",
  "or",
  "wor",
  "ld",
  "el",
  "lo",
];
const merges = [
  ["▁", "w"],
  ["o", "r"],
  ["▁w", "or"],
  ["l", "d"],
  ["▁wor", "ld"],
  ["▁wor", "d"],
  ["▁word", "s"],
  ["▁", "t"],
  ["h", "e"],
  ["▁t", "he"],
  ["w", "or"],
  ["e", "l"],
  ["l", "o"],
  ["▁", "h"],
  ["el", "lo"],
  ["▁h", "ello"],
];

/** A tokenizer.json as Llama 2's: a space before the text, bytes for what the vocabulary lacks, <s> before it. */
export async function sentencePiece({ ending = false } = {}) {
  const vocab = { "<unk>": 0, "<s>": 1, "</s>": 2 };
  const add = (token) => {
    vocab[token] ??= Object.keys(vocab).length;
  };
  for (let byte = 0; byte < 256; byte++)
    add(`<0x${byte.toString(16).toUpperCase().padStart(2, "0")}>`);
  for (const letter of "▁abcdefghijklmnopqrstuvwxyz.,!<>/") add(letter);
  for (const [left, right] of merges) add(left + right);
  for (const word of words) add(word);
  const special = (id, content) => ({
    id,
    content,
    special: true,
    single_word: false,
    lstrip: false,
    rstrip: false,
    normalized: false,
  });
  const begin = { SpecialToken: { id: "<s>", type_id: 0 } };
  const end = { SpecialToken: { id: "</s>", type_id: 0 } };
  const single = [begin, { Sequence: { id: "A", type_id: 0 } }, ...(ending ? [end] : [])];
  const file = {
    version: "1.0",
    added_tokens: [special(0, "<unk>"), special(1, "<s>"), special(2, "</s>")],
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
      single,
      pair: single,
      special_tokens: {
        "<s>": { id: "<s>", ids: [1], tokens: ["<s>"] },
        "</s>": { id: "</s>", ids: [2], tokens: ["</s>"] },
      },
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
      dropout: null,
      unk_token: "<unk>",
      continuing_subword_prefix: null,
      end_of_word_suffix: null,
      fuse_unk: true,
      byte_fallback: true,
      ignore_merges: false,
      vocab,
      merges,
    },
  };
  return tinyloom.Tokenizer.fromPretrained({
    "tokenizer.json": json(file),
    "tokenizer_config.json": json({
      eos_token: "</s>",
      bos_token: "<s>",
      tokenizer_class: "LlamaTokenizer",
    }),
  });
}
