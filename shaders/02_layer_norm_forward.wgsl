// layer_norm_forward: with m = mean(x[t, :]) and r = 1 / sqrt(mean((x[t, :] − m)²) + EPSILON),
//   y[t, :] = (x[t, :] − m) · r · weight[0] + weight[1]
// The mean is taken off before squares are summed: their difference would cancel.
// RESIDUAL: the result is added to the residual stream.
// (Ba, Kiros and Hinton, "Layer normalization", arXiv:1607.06450)
//
// A row is ROW vectors (lib/vector.wgsl).
// Grid: one workgroup per row.
#import lib/step
#import lib/flat
#import lib/vector
#import lib/reduce

#binding x: array<Vector>       // read     f32 [tokens, HIDDEN]
#binding weight: array<Vector>  // read     f32 [2, HIDDEN]        factors, then what is added
#binding y: array<Vector>       // write    f32 [tokens, HIDDEN]   overwritten
#binding step: Step             // uniform
#if RESIDUAL
#binding residual: array<Vector>  // read  f32 [tokens, HIDDEN]
#endif

fn run(lane: u32, workgroup: vec3<u32>, workgroups: vec3<u32>) {
  let t = flat_workgroup(workgroup, workgroups);
  if t >= step.tokens {
    return;
  }
  let base = t * ROW;
  var sum = 0.0;
  for (var i = lane; i < ROW; i += WORKGROUP) {
    sum += total(x[base + i]);
  }
  let mean = reduce_sum(lane, sum) / f32(HIDDEN);
  var squares = 0.0;
  for (var i = lane; i < ROW; i += WORKGROUP) {
    let value = x[base + i] - mean;
    squares += total(value * value);
  }
  let scale = inverseSqrt(reduce_sum(lane, squares) / f32(HIDDEN) + EPSILON);
  for (var i = lane; i < ROW; i += WORKGROUP) {
#if RESIDUAL
    y[base + i] = (x[base + i] - mean) * scale * weight[i] + weight[ROW + i] + residual[base + i];
#else
    y[base + i] = (x[base + i] - mean) * scale * weight[i] + weight[ROW + i];
#endif
  }
}
