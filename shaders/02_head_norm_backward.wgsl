// head_norm_backward: with w = weight_of(weight), and r = 1 / sqrt(mean(x²) + EPSILON) for each query and key head
// of a row,
//   d_x      = r · (w · d_y) − x · r³ / HEAD_DIM · Σ (w · d_y · x)
//   partial  = Σ over ROWS rows and their heads of d_y · x · r   (summed into d_weight by column_sum)
// Gradients of value heads stay.
//
// Grid: one workgroup per ROWS rows. Each invocation owns COLUMNS columns of both weights' gradients
// and keeps their sums in registers.
#import lib/step
#import lib/flat
#import lib/vector
#import lib/reduce
#import lib/norm_weight

#binding x: array<f32>             // read        f32 [tokens, STRIDE]    HEADS query, KV_HEADS key, KV_HEADS value heads
#binding weight: array<f32>        // read        f32 [2, HEAD_DIM]       of queries, of keys
#binding d: array<f32>             // read_write  f32 [tokens, STRIDE]    d_y, overwritten by d_x
#binding partial_sums: array<f32>  // read_write  f32 [ceil(tokens / ROWS), 2, HEAD_DIM]  overwritten
#binding step: Step                // uniform

fn run(lane: u32, workgroup: vec3<u32>, workgroups: vec3<u32>) {
  let block = flat_workgroup(workgroup, workgroups);
  let first = block * ROWS;
  if first >= step.tokens {
    return;
  }
  var sums: array<vec2<f32>, COLUMNS>;
  for (var c = 0u; c < COLUMNS; c++) {
    sums[c] = vec2(0.0);
  }
  let last = min(first + ROWS, step.tokens);
  for (var t = first; t < last; t++) {
    for (var head = 0u; head < HEADS + KV_HEADS; head++) {
      let base = t * STRIDE + head * HEAD_DIM;
      let is_key = head >= HEADS;
      let own = select(0u, HEAD_DIM, is_key);
      var squares = 0.0;
      var projection = 0.0;
      for (var i = lane; i < HEAD_DIM; i += WORKGROUP) {
        let value = x[base + i];
        squares += value * value;
        projection += value * weight_of(weight[own + i]) * d[base + i];
      }
      let scale = inverseSqrt(reduce_sum(lane, squares) / f32(HEAD_DIM) + EPSILON);
      let pull = reduce_sum(lane, projection) * scale * scale * scale / f32(HEAD_DIM);
      for (var c = 0u; c < COLUMNS; c++) {
        let i = lane + c * WORKGROUP;
        if i < HEAD_DIM {
          let value = x[base + i];
          let slope = d[base + i];
          sums[c] += select(vec2(1.0, 0.0), vec2(0.0, 1.0), is_key) * (slope * value * scale);
          d[base + i] = scale * weight_of(weight[own + i]) * slope - value * pull;
        }
      }
    }
  }
  for (var c = 0u; c < COLUMNS; c++) {
    let i = lane + c * WORKGROUP;
    if i < HEAD_DIM {
      partial_sums[block * 2u * HEAD_DIM + i] = sums[c].x;
      partial_sums[block * 2u * HEAD_DIM + HEAD_DIM + i] = sums[c].y;
    }
  }
}
