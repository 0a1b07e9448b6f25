// intervene_forward: x[t, :] changed by each intervention at this site that covers the position of t, in their order
//
// An intervention covers COUNT columns from its first one on, and positions of a text. With v its vector, it
// - scales: x ← factor · x, and 0 where the factor is 0, whatever x is
// - adds: x ← x + factor · v
// - projects: x ← x + factor · (x · v) v
// - sets: x ← v
//
// How many there are at which site is read at run time: other interventions compile nothing.
// RESIDUAL: the result is added to other rows, and left apart.
// Grid: one workgroup per row. A column belongs to one invocation, so that interventions follow each other without a barrier.
#import lib/step
#import lib/flat
#import lib/range
#import lib/reduce

#binding x: array<f32>              // read_write  f32 [tokens, COLUMNS]       changed in place
#binding documents: array<u32>      // read        u32 [tokens]                start of each row's document
// interventions: for each site its first one and how many; from ENTRIES on 8 words of each: kind, first position, how many,
// where its vector is, first column, how many, factor, 0; then vectors
#binding interventions: array<u32>  // read
#binding step: Step                 // uniform
#binding range: Range               // uniform     col0: the number of the site
#if RESIDUAL
#binding residual: array<f32>       // read        f32 [tokens, COLUMNS]
#binding sum: array<f32>            // write       f32 [tokens, COLUMNS]       overwritten
#endif

const SCALE = 0u;
const PROJECT = 2u;
const SET = 3u;

fn run(lane: u32, workgroup: vec3<u32>, workgroups: vec3<u32>) {
  let t = flat_workgroup(workgroup, workgroups);
  if t >= step.tokens {
    return;
  }
  let base = t * COLUMNS;
  let position = step.position + t - documents[t];
  let first = interventions[2u * range.col0];
  let end = first + interventions[2u * range.col0 + 1u];
  for (var i = first; i < end; i++) {
    let entry = ENTRIES + 8u * i;
    // Wraps for positions before the first.
    if position - interventions[entry + 1u] >= interventions[entry + 2u] {
      continue;
    }
    let kind = interventions[entry];
    let begin = interventions[entry + 4u];
    let behind = begin + interventions[entry + 5u];
    let vector = interventions[entry + 3u] - begin;
    let own = begin + (lane + WORKGROUP - begin % WORKGROUP) % WORKGROUP;
    var factor = bitcast<f32>(interventions[entry + 6u]);
    if kind == PROJECT {
      var product = 0.0;
      for (var c = own; c < behind; c += WORKGROUP) {
        product += x[base + c] * bitcast<f32>(interventions[vector + c]);
      }
      factor *= reduce_sum(lane, product);
    }
    for (var c = own; c < behind; c += WORKGROUP) {
      let before = x[base + c];
      if kind == SCALE {
        x[base + c] = select(factor * before, 0.0, factor == 0.0);
        continue;
      }
      let value = bitcast<f32>(interventions[vector + c]);
      x[base + c] = select(before + factor * value, value, kind == SET);
    }
  }
#if RESIDUAL
  for (var c = lane; c < COLUMNS; c += WORKGROUP) {
    sum[base + c] = residual[base + c] + x[base + c];
  }
#endif
}
