/**
 * How a text is changed before it is split. `@huggingface/tokenizers` is given expressions that mean the same where it
 * changes texts otherwise than Python: white space at the ends, sigma at the end of a word, and `$` in a replacement.
 */

import { corrupt } from "../file-part.js";
import { show } from "../options.js";
import { expression, literal } from "./expressions.js";
import { precompiledOf } from "./precompiled.js";
import { partsOf, type TokenizerJson, type TokenizerPart } from "./tokenizer-json.js";

type Change = (text: string) => string;

/**
 * What is done to a text before it is split.
 *
 * @param by - what the package does with a normaliser.
 */
export function normalizing(
  place: string,
  { normalizer }: TokenizerJson,
  by: (part: TokenizerPart) => Change,
): Change {
  const changes: Change[] = [];
  let together: TokenizerPart[] = [];
  const flush = () => {
    if (together.length > 0) changes.push(by({ type: "Sequence", normalizers: together }));
    together = [];
  };
  for (const part of partsOf(normalizer, "normalizers")) {
    if (part?.type !== "Precompiled") together.push(...partBy(place, part));
    else {
      flush();
      changes.push(precompiledOf(place, part));
    }
  }
  flush();
  return (text) => changes.reduce((now, change) => change(now), text);
}

const replacing = ({ text: Regex }: { text: string }, content: string): TokenizerPart => ({
  type: "Replace",
  pattern: { Regex },
  content: content.replaceAll("$", "$$$$"),
});

/** JavaScript writes a last sigma otherwise; Python's tokenizers change each letter by itself. */
const SIGMA = replacing({ text: "Σ" }, "σ");

/** Han as BERT has it. The package looks at units, and does not see those of two. */
const HAN =
  "[\\x{4e00}-\\x{9fff}\\x{3400}-\\x{4dbf}\\x{20000}-\\x{2a6df}\\x{2a700}-\\x{2b73f}" +
  "\\x{2b740}-\\x{2b81f}\\x{2b920}-\\x{2ceaf}\\x{f900}-\\x{faff}\\x{2f800}-\\x{2fa1f}]";

/** BERT's normaliser in its steps: cleaned, spaces around Han, and letters. */
function bert(part: TokenizerPart): TokenizerPart[] {
  const clean = { ...part, handle_chinese_chars: false, lowercase: false, strip_accents: false };
  return [
    clean,
    ...(part["handle_chinese_chars"]
      ? [{ type: "Replace", pattern: { Regex: HAN }, content: " $& " }]
      : []),
    ...(part["lowercase"] ? [SIGMA] : []),
    { ...part, clean_text: false, handle_chinese_chars: false },
  ];
}

function partBy(place: string, part: TokenizerPart): TokenizerPart[] {
  switch (part?.type) {
    case "Lowercase":
      return [SIGMA, part];
    case "BertNormalizer":
      return bert(part);
    case "Strip":
      return [
        ...(part["strip_left"] ? [replacing({ text: String.raw`\A\p{White_Space}+` }, "")] : []),
        ...(part["strip_right"] ? [replacing({ text: String.raw`\p{White_Space}+\z` }, "")] : []),
      ];
    case "Replace": {
      const { String: text, Regex: regex } = Object(part["pattern"]) as {
        String?: unknown;
        Regex?: unknown;
      };
      const { content } = part;
      if ((typeof text !== "string" && typeof regex !== "string") || typeof content !== "string") {
        throw corrupt(
          `${place}: a normalizer is ${show(JSON.stringify(part))}, which is not computed here`,
        );
      }
      const what = `${place}: the expression of a Replace`;
      return [
        replacing(
          typeof text === "string" ? literal(text) : expression(what, regex as string),
          content,
        ),
      ];
    }
    default:
      return [part]; // the package refuses what it does not know
  }
}
