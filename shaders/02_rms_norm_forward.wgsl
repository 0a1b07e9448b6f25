// uses: step, flat, norm/plain or norm/residual, norm/weight or norm/weight_shifted, reduce_subgroup or reduce_tree
// rms_norm_forward: y[t, :] = x[t, :] / sqrt(mean(x[t, :]²) + EPSILON) · weight_of(weight)
// (Zhang and Sennrich, "Root mean square layer normalization", arXiv:1910.07467)
//
//   0 x       read   f32 [tokens, HIDDEN]
//   1 weight  read   f32 [HIDDEN]
//   2 y       write  f32 [tokens, HIDDEN]   overwritten
//   3 step    uniform
//
// and then, where the kernel adds one, a residual, f32 as y.
//
// Grid: one workgroup per row.
@group(0) @binding(0) var<storage, read> x: array<f32>;
@group(0) @binding(1) var<storage, read> weight: array<f32>;
@group(0) @binding(2) var<storage, read_write> y: array<f32>;
@group(0) @binding(3) var<uniform> step: Step;

fn run(lane: u32, workgroup: vec3<u32>, workgroups: vec3<u32>) {
  let t = flat_workgroup(workgroup, workgroups);
  if t >= step.tokens {
    return;
  }
  let base = t * HIDDEN;
  var squares = 0.0;
  for (var i = lane; i < HIDDEN; i += WORKGROUP) {
    let value = x[base + i];
    squares += value * value;
  }
  let scale = inverseSqrt(reduce_sum(lane, squares) / f32(HIDDEN) + EPSILON);
  for (var i = lane; i < HIDDEN; i += WORKGROUP) {
    y[base + i] = finished(x[base + i] * scale * weight_of(weight[i]), base + i);
  }
}
