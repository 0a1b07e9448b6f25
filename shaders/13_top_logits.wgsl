// top_logits_forward: the COUNT likeliest tokens of a step with their log-probabilities under the model,
// before penalty, bias, temperature and filters. It runs before sample_forward, which ends the step.
//
// ROWS: of each row of a chunk, with their logits and no logarithm.
//
// The likeliest comes first, and of equal logits the lowest token. COUNT passes over the logits, each for
// the best token behind the one before. COUNT is at most VOCABULARY.
// Grid: one workgroup; ROWS: one per row.
#import lib/step
#if ROWS
#import lib/range
#import lib/flat
#endif
#import lib/reduce
#import lib/logits

#binding logits: array<f32>            // read        f32 [VOCABULARY]; ROWS: [range rows, VOCABULARY]
// top: [turns, COUNT] of (token, bits of its log-probability), overwritten; ROWS: [range rows, COUNT] of (token, bits of its
// logit)
#binding top: array<vec2<u32>>         // read_write
#binding step: Step                    // uniform
#if ROWS
#binding range: Range                  // uniform
#else
#binding options: array<vec4<u32>, 2>  // uniform     the Sampling of lib/sample.wgsl; only first_draw is read
#endif

// Less than any logit that is not minus infinity.
const LEAST: f32 = -3.4e38;

fn run(lane: u32, workgroup: vec3<u32>, workgroups: vec3<u32>) {
#if ROWS
  let row = flat_workgroup(workgroup, workgroups);
  if row >= range_rows(step.tokens, range) {
    return;
  }
  let base = row * VOCABULARY;
  let first = (range.row0 + row) * COUNT;
#else
  let terms = softmax_terms(lane, 0u);
  let log_sum = terms.x + log(terms.y);
  let turn = step.draws - options[1].w;
#endif
  var before = 0.0;
  var before_token = VOCABULARY;
  for (var n = 0u; n < COUNT; n++) {
    var best = LEAST;
    var token = VOCABULARY;
    for (var i = lane; i < VOCABULARY; i += WORKGROUP) {
#if ROWS
      let x = logits[base + i];
#else
      let x = logits[i];
#endif
      let behind = n == 0u || x < before || (x == before && i > before_token);
      if behind && (token == VOCABULARY || x > best) {
        best = x;
        token = i;
      }
    }
    let largest = reduce_max(lane, best);
    // Exact: a vocabulary is far below 2^24.
    let candidate = select(f32(VOCABULARY), f32(token), best == largest);
    let lowest = -reduce_max(lane, -candidate);
    before = largest;
    before_token = u32(lowest);
    if lane == 0u {
#if ROWS
      top[first + n] = vec2(min(before_token, VOCABULARY - 1u), bitcast<u32>(largest));
#else
      top[turn * COUNT + n] = vec2(min(before_token, VOCABULARY - 1u), bitcast<u32>(largest - log_sum));
#endif
    }
  }
}
