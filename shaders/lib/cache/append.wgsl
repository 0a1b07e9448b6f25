#import lib/cache/key_row
#if BATCHED
// Row t is of a text of its own, whose rows of the cache begin step.reserved.x rows behind those of the text
// before; where that is 0, all rows are of one text. Its position is t - documents[t], which wraps.
#operand documents: array<u32>  // read  u32 [tokens]
#endif

fn appended_row(t: u32) -> u32 {
#if BATCHED
  return t * step.reserved.x + key_row(t - #documents[t]);
#else
  // Rows of a text go behind those that the cache holds.
  return key_row(step.position + t);
#endif
}
