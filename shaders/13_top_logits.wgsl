// top_logits_forward: the COUNT likeliest tokens of a step with their log-probabilities under the model,
// before penalty, bias, temperature and filters. It runs before sample_forward, which ends the step.
//
// The likeliest comes first, and of equal logits the lowest token. COUNT passes over the logits, each for
// the best token behind the one before. COUNT is at most VOCABULARY.
// Grid: one workgroup.
#import lib/step
#import lib/reduce
#import lib/logits

#binding logits: array<f32>            // read        f32 [VOCABULARY]
// top: vec2<u32> [turns, COUNT] (token, bits of its log-probability), overwritten
#binding top: array<vec2<u32>>         // read_write
#binding step: Step                    // uniform
#binding options: array<vec4<u32>, 2>  // uniform     the Sampling of lib/sample.wgsl; only turn0 is read

// Less than any logit that is not minus infinity.
const LEAST: f32 = -3.4e38;

fn run(lane: u32, workgroup: vec3<u32>, workgroups: vec3<u32>) {
  let terms = softmax_terms(lane, 0u);
  let log_sum = terms.x + log(terms.y);
  let turn = step.draws - options[1].w;
  var before = 0.0;
  var before_token = VOCABULARY;
  for (var n = 0u; n < COUNT; n++) {
    var best = LEAST;
    var token = VOCABULARY;
    for (var i = lane; i < VOCABULARY; i += WORKGROUP) {
      let x = logits[i];
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
      top[turn * COUNT + n] = vec2(min(before_token, VOCABULARY - 1u), bitcast<u32>(largest - log_sum));
    }
  }
}
