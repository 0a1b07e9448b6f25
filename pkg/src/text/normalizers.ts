/**
 * How a text is changed before it is split. `@huggingface/tokenizers` is given expressions that mean the same where it
 * changes texts otherwise than Python: white space at the ends, sigma at the end of a word, and `$` in a replacement.
 */

import { corrupt } from "../file-part.js";
import { show } from "../options.js";
import { expression, literal } from "./expressions.js";
import { partsOf, type TokenizerJson, type TokenizerPart } from "./tokenizer-json.js";

/** The normaliser that the package is given. */
export function normalizerOf(place: string, { normalizer }: TokenizerJson): TokenizerPart | null {
  const parts = partsOf(normalizer, "normalizers").flatMap((part) => partBy(place, part));
  if (parts.length === 0) return null;
  return { type: "Sequence", normalizers: parts };
}

const replacing = ({ text: Regex }: { text: string }, content: string): TokenizerPart => ({
  type: "Replace",
  pattern: { Regex },
  content: content.replaceAll("$", "$$$$"),
});

/** JavaScript writes a last sigma otherwise; Python's tokenizers change each letter by itself. */
const SIGMA = replacing({ text: "Σ" }, "σ");

function partBy(place: string, part: TokenizerPart): TokenizerPart[] {
  switch (part?.type) {
    case "Lowercase":
      return [SIGMA, part];
    case "BertNormalizer":
      return part["lowercase"] ? [SIGMA, part] : [part];
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
