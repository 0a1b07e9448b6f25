#if DROPPED
// Dropout of probabilities, behind the softmax: a query leaves out some of its keys, and what is kept is scaled
// up for it (Srivastava et al., "Dropout", JMLR 2014). Integers alone decide, so that every adapter and every tile
// leave out the same keys, and the backward pass draws the masks again.
//
// A block of random words is of four keys that are eight apart: an invocation has two or four of them in most tiles.
#import lib/philox
#import lib/range

#binding range: Range  // uniform  col0: the number of the layer's place of dropout
#endif

// The random words of a key's block.
fn words_of(head: u32, row: u32, key: u32) -> vec4<u32> {
#if DROPPED
  let blocks = (step.tokens + 31u) / 32u * 8u;
  let block = row * blocks + key / 32u * 8u + key % 8u;
  return philox(vec4(block, step.draws, range.col0 | (head << 18u), 0x64726f70u), step.reserved);
#else
  return vec4(0u);
#endif
}

// What the probability of a key is multiplied by, with the words of its block.
fn kept_of(words: vec4<u32>, key: u32) -> f32 {
#if DROPPED
  return select(0.0, KEPT_SCALE, words[key / 8u % 4u] >= THRESHOLD);
#else
  return 1.0;
#endif
}
