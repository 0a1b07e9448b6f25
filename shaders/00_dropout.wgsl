// dropout_forward: rows of which each element is left out with a probability, and what is kept is scaled up
// for it; the same masks on gradients. Integers alone decide, so that every adapter leaves out the same
// elements, and a mask need not be kept. (Srivastava et al., "Dropout", JMLR 2014)
//
// RESIDUAL: what is kept is added to a residual stream.
//
// An element is left out where its word is below THRESHOLD. Grid: one invocation per four elements of a row,
// which share a block of random words.
#import lib/step
#import lib/flat
#import lib/philox
#import lib/range
#import lib/write_mode

#binding input: array<f32>   // read        f32 [tokens, COLUMNS]
#binding output: array<f32>  // read_write  f32 [tokens, COLUMNS]  by WRITE_MODE
#binding step: Step          // uniform     draws: micro-steps before this one; reserved: the seed
#binding range: Range        // uniform     col0: the number of the place, which has masks of its own
#if RESIDUAL
#binding residual: array<f32>  // read  f32 [tokens, COLUMNS]
#endif

fn run(lane: u32, workgroup: vec3<u32>, workgroups: vec3<u32>) {
  let id = flat_id(lane, workgroup, workgroups);
  let t = id / ROW_BLOCKS;
  if t < step.tokens {
    let words = philox(vec4(id, step.draws, range.col0, 0x64726f70u), step.reserved);
    let first = id % ROW_BLOCKS * 4u;
    for (var i = 0u; i < min(4u, COLUMNS - first); i++) {
      let at = t * COLUMNS + first + i;
      let kept = select(0.0, input[at] * SCALE, words[i] >= THRESHOLD);
      if adds(step.accumulate) {
        output[at] += kept;
      } else {
#if RESIDUAL
        output[at] = residual[at] + kept;
#else
        output[at] = kept;
#endif
      }
    }
  }
}
