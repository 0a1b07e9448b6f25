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
// KEPT = COLUMNS: an invocation keeps its part of a row in registers. KEPT = 1: it reads it again.
// Grid: one workgroup per row. Each invocation owns COLUMNS columns.
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
  var factors: array<f32, KEPT>;
  var values: array<f32, KEPT>;
  var squares = 0.0;
  for (var c = 0u; c < COLUMNS; c++) {
    let i = lane + c * WORKGROUP;
    let k = select(0u, c, KEPT == COLUMNS);
    if HIDDEN % WORKGROUP == 0u || i < HIDDEN {
      if KEPT == COLUMNS {
        factors[k] = weight_of(weight[i]);
      }
      values[k] = x[base + i];
      squares += values[k] * values[k];
    }
  }
  let scale = inverseSqrt(reduce_sum(lane, squares) / f32(HIDDEN) + EPSILON);
  for (var c = 0u; c < COLUMNS; c++) {
    let i = lane + c * WORKGROUP;
    let k = select(0u, c, KEPT == COLUMNS);
    if HIDDEN % WORKGROUP == 0u || i < HIDDEN {
      if KEPT < COLUMNS {
        factors[k] = weight_of(weight[i]);
        values[k] = x[base + i];
      }
      y[base + i] = finished(values[k] * scale * factors[k], base + i);
    }
  }
}
