// Prompts of the weights that `weights.py` makes: ids, and the text of which every tokenizer makes these ids.

/** Ids before those of words. */
const BYTES = 256;
const LETTERS = 26;

/** Reproducible ids of words. */
export function idsOf(vocabulary, length, seed) {
  let state = Math.imul(seed + 1, 2654435761) >>> 0;
  return Array.from({ length }, () => {
    state = (Math.imul(state, 1664525) + 1013904223) >>> 0;
    // The last id ends a text.
    return BYTES + Math.floor((state / 2 ** 32) * (vocabulary - BYTES - 1));
  });
}

/** As `word` of weights.py. */
function word(index) {
  const before = index < LETTERS ? " " : word(Math.floor(index / LETTERS) - 1);
  return before + String.fromCharCode(97 + (index % LETTERS));
}

/** The text of these ids, for a library that takes no ids. */
export const textOf = (ids) => ids.map((id) => word(id - BYTES)).join("");
