/** What byte-level BPE has in tokenizer.json. */

/** The part that maps bytes to letters. @param use_regex - whether it splits a text into GPT-2's words too. */
export const byteLevel = (use_regex: boolean) => ({
  type: "ByteLevel",
  add_prefix_space: false,
  trim_offsets: true,
  use_regex,
});

/** Words by an expression, whose bytes are then mapped. */
export const splitInto = (Regex: string, bytes: object) => ({
  type: "Sequence",
  pretokenizers: [
    { type: "Split", pattern: { Regex }, behavior: "Isolated", invert: false },
    bytes,
  ],
});

/** How an added token is found: as it stands. */
export const AS_IT_STANDS = {
  single_word: false,
  lstrip: false,
  rstrip: false,
  normalized: false,
};

/** The model of merges. */
export const bpeModel = <Merge>(
  vocab: { readonly [token: string]: number },
  merges: readonly Merge[],
) => ({
  type: "BPE",
  dropout: null,
  unk_token: null as string | null,
  continuing_subword_prefix: null,
  end_of_word_suffix: null,
  fuse_unk: false,
  byte_fallback: false,
  ignore_merges: false,
  vocab,
  merges,
});
