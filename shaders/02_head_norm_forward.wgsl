// head_norm_forward: norms each query and key head of a row by itself; value heads are copied.
//   y[head] = x[head] / sqrt(mean(x[head]²) + EPSILON) · weight_of(weight of queries or keys)
// (Henry et al., "Query-key normalization for transformers", arXiv:2010.04245, with RMSNorm)
//
// Grid: one workgroup per head of a row.
#import lib/step
#import lib/flat
#import lib/vector
#import lib/reduce
#import lib/norm_weight

#binding x: array<f32>       // read     f32 [tokens, STRIDE]    HEADS query, KV_HEADS key, KV_HEADS value heads
#binding weight: array<f32>  // read     f32 [2, HEAD_DIM]       of queries, of keys
#binding y: array<f32>       // write    f32 [tokens, STRIDE]    overwritten
#binding step: Step          // uniform

fn run(lane: u32, workgroup: vec3<u32>, workgroups: vec3<u32>) {
  let id = flat_workgroup(workgroup, workgroups);
  let head = id % ROW_HEADS;
  if id / ROW_HEADS >= step.tokens {
    return;
  }
  let base = id * HEAD_DIM;
  if head >= HEADS + KV_HEADS {
    for (var i = lane; i < HEAD_DIM; i += WORKGROUP) {
      y[base + i] = x[base + i];
    }
    return;
  }
  var squares = 0.0;
  for (var i = lane; i < HEAD_DIM; i += WORKGROUP) {
    let value = x[base + i];
    squares += value * value;
  }
  let scale = inverseSqrt(reduce_sum(lane, squares) / f32(HEAD_DIM) + EPSILON);
  let own = select(0u, HEAD_DIM, head >= HEADS);
  for (var i = lane; i < HEAD_DIM; i += WORKGROUP) {
    y[base + i] = x[base + i] * scale * weight_of(weight[own + i]);
  }
}
