// attention_probabilities_forward: how much each query of one head attends to each key, from the logsumexp
// that attention_forward has left, as its backward pass has them (Dao, arXiv:2307.08691):
// exp(score(q · k) − lse), and 0 for keys that the mask hides.
//
// The head is a run-time value, so that another one compiles nothing.
// SHARES: rows of all heads of a whole text, where those of chunks go behind those before.
// Grid: one workgroup per row; its invocations stride over the keys.
#import lib/step
#import lib/cache/key_row
#import lib/attention/mask
#import lib/attention/score

#binding query: array<vec4<f32>>    // read     f32 [tokens, Q_STRIDE]           head h at column h · HEAD_DIM
// keys: f32 [keys, KV_STRIDE] heads of keys first, rows where lib/cache/key_row.wgsl says
#binding keys: array<vec4<f32>>     // read
#binding documents: array<u32>      // read     u32 [tokens]                     first key that each query may see
#binding lse: array<f32>            // read     f32 [tokens, HEADS]
// probabilities: f32 [tokens, position + tokens], overwritten; SHARES: [HEADS, text, text]
#binding probabilities: array<f32>  // write
#binding step: Step                 // uniform
#binding probe: vec4<u32>           // uniform  vec4<u32>                        the head first; SHARES: then tokens of the text

fn run(lane: u32, workgroup: vec3<u32>, workgroups: vec3<u32>) {
  let row = workgroup.x;
  if row >= step.tokens {
    return;
  }
  let head = probe.x;
  let query_begin = (row * Q_STRIDE + head * HEAD_DIM) / 4u;
  let head_begin = head / (HEADS / KV_HEADS) * VECTORS;
  let log_sum = lse[row * HEADS + head];
  let seen = seen_keys(0u, row);
#if SHARES
  let columns = probe.y;
  let begin = (head * columns + step.position + row) * columns;
#else
  let columns = step.position + step.tokens;
#endif
  for (var k = lane; k < columns; k += WORKGROUP) {
    var share = 0.0;
    if k - seen.x < seen.y {
      let key_begin = key_row(k) * (KV_STRIDE / 4u) + head_begin;
      var product = 0.0;
      for (var v = 0u; v < VECTORS; v++) {
        product += dot(query[query_begin + v], keys[key_begin + v]);
      }
      share = probability(score_of(product), 0.0, log_sum);
    }
#if SHARES
    probabilities[begin + k] = share;
#else
    probabilities[row * columns + k] = share;
#endif
  }
}
