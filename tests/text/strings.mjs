// Texts on which tokenizers differ: white space, code, scripts, marks, special tokens, and mixes of all with a seed.
import { below, mulberry32 } from "../random.mjs";

const SPACES = [
  "",
  " ",
  "  ",
  "   ",
  "\n",
  "\n\n",
  "\t",
  " \n",
  "\n ",
  "\r\n",
  " \n \n ",
  "x\n\n\ny",
  "  \t \n\t ",
]
  .concat([
    " ".repeat(17),
    `${" ".repeat(33)}x`,
    "\n".repeat(9),
    "a ",
    " a",
    "  a  b   c    d     e",
  ])
  .concat([
    "a\u00a0b",
    "\u3000全角",
    "\u0085",
    "a\u0085 b",
    "\u2028line\u2029",
    "\u200b\u200c\u200d",
  ])
  .concat(["\ufeff", "\ufeff\ufeffa", "a\ufeff b", "\ufeffBOM", "\u2003x"]);
const WRITTEN = [
  "Hello, world!",
  "don't can't I'll you've we'd I'm it's DON'T CAN'T O'Brien's 'S 'LL",
  "’tis the season—isn’t it? “quoted” ‘single’ …",
  "it'ſ x'ſa 'ſ \u212aelvin'\u212a ſt ﬁ ﬂ ﬀ ß ẞ STRASSE",
  "1 12 123 1234 12345678901234567890 3.14159 1,000,000 2024-01-02T03:04:05Z 0x1F 1e-5",
  "café cafe\u0301 naïve ÀÉÎÕÜ İstanbul ı Å Å ǆ ΟΔΥΣΣΕΥΣ e\u0301\u0302\u0303",
  "price ½",
  " ²",
  " ٣",
  "①②③ ½ ² ³ Ⅳ ٣٤ १२३ ４２ 1½",
  "你好，世界！",
  "日本語のテキストです。カタカナ が が",
  "한국어 텍스트입니다. ᄀ\u1161\u11a8",
  "ภาษาไทยไม่มีช่องว่าง",
  "עברית שלום العربية مرحبا ﷺ",
  "हिन्दी नमस्ते \u0915\u094d\u0937",
  "Ελληνικά Русский текст, привет!",
  "𝕳𝖊𝖑𝖑𝖔 𐍈 𒀀 \u{10ffff} \ue000 \ufffd \ufffe",
  "🙂🙃😉 👨‍👩‍👧‍👦 👍🏽 🇩🇪🇫🇷 ❤️ \u{1f468}\u200d\u{1f4bb}",
  "\u0000 a\u0000b \u0001\u0002\u001b[0m \u007f",
  "def f(x):\n    return  x ** 2\n\n\tif (a[i] += b[i]) { }\n",
  '<div class="x">&amp; text</div> https://example.com/p?q=1&b=2#f user@example.com C:\\a\\b.txt',
  "`code` **bold** _it_ # h ```python\nprint('x')\n``` \\n\\t\\u0041 (){}[]<> !!!???... ----- _____",
  "∀x∈ℝ: x² ≥ 0 α+β=γ → ← €£¥₹ —–- $100.00 50% #1",
  "camelCase snake_case kebab-case ALLCAPS supercalifragilisticexpialidocious",
  "a".repeat(60),
  "ab".repeat(40),
];
// As many tokenizers spell them; of each tokenizer some are tokens and the others are not.
const SPELLED = [
  "<|im_start|>user\nHi<|im_end|>\n",
  "text <|im_end|> inside",
  "a<|endoftext|>b",
  "<s>",
  "</s>x",
]
  .concat([
    "<bos>",
    "a <eos> b",
    "<start_of_turn>user\nHi<end_of_turn>\n",
    "<unused5>",
    "<pad>",
    "<unk>",
  ])
  .concat([
    "<0x0A>",
    "<0x41>é",
    "▁",
    "a▁b",
    "▁▁",
    "a ▁ b",
    "<think>\n\n</think>",
    "<tool_call>{}</tool_call>",
  ])
  .concat([
    "<|begin_of_text|>x",
    "<|eot_id|><|eot_id|>",
    "<|start_header_id|>user<|end_header_id|>\n\n",
  ])
  .concat([
    "<|im_start",
    "im_end|>",
    "< |im_end|>",
    "<|IM_END|>",
    "<|channel|>final<|message|>",
    "<|return|>",
  ])
  .concat([
    "<table>",
    "</table><tr>",
    "<h1>x</h1>",
    "<image_soft_token>",
    "[INST] x [/INST]",
    "Ġ",
    "ĊĠhello",
    "ÃŁ",
  ]);
const MIXED = [
  "a",
  "b",
  "Z",
  "0",
  "9",
  "½",
  "²",
  "٣",
  " ",
  "  ",
  "\n",
  "\t",
  "é",
  "ß",
  "ſ",
  "你",
  "の",
  "ก",
  "🙂",
]
  .concat([
    "👍🏽",
    "\u0301",
    ".",
    ",",
    "'",
    '"',
    "-",
    "_",
    "<",
    "|",
    ">",
    "▁",
    "\u00a0",
    "\u0085",
    "\ufeff",
    "\u200d",
  ])
  .concat(["ж", "ا", "'s", "'ll", "'S", " the", "ing", "{", "}", "/", "\\", "\r\n", "\u0000", "𐍈"]);

/**
 * At least 500 texts, the same for the same seed.
 *
 * @param tokens - texts of a tokenizer's own tokens, which are mixed in.
 */
export function strings(seed, tokens, count = 520) {
  const pick = below(mulberry32(seed));
  const one = (list) => list[pick(list.length)];
  const all = [...SPACES, ...WRITTEN, ...SPELLED];
  while (all.length < count) {
    const kind = pick(4);
    const length = 2 + pick(kind === 3 ? 6 : 22);
    const lists = [[MIXED], [MIXED], [MIXED, tokens], [WRITTEN, SPELLED, SPACES, tokens]][kind];
    all.push(Array.from({ length }, () => one(one(lists))).join(""));
  }
  return all;
}

/** Lists of ids: any, and such that hold many of a few. */
export function idLists(seed, size, often, count = 200) {
  const pick = below(mulberry32(seed));
  return Array.from({ length: count }, (_, at) =>
    Array.from({ length: 1 + pick(24) }, () =>
      at % 2 && often.length > 0 && pick(3) ? often[pick(often.length)] : pick(size),
    ),
  );
}
