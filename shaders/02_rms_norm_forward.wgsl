// uses: step, flat, by_element or by_four, norm/row or norm/row_summed, norm/plain or norm/residual or norm/halves, norm/weight or norm/weight_shifted, reduce_subgroup or reduce_tree
// rms_norm_forward: y[t, :] = x[t, :] / sqrt(mean(x[t, :]²) + EPSILON) · weight_of(weight)
// (Zhang and Sennrich, "Root mean square layer normalization", arXiv:1910.07467)
//
//   0 x       read   f32 [tokens, HIDDEN], or PARTS of it (norm/row_summed.wgsl)
//   1 weight  read   f32 [HIDDEN]
//   2 y       write  f32 [tokens, HIDDEN]   overwritten, or f16 (norm/halves.wgsl)
//   3 step    uniform
//
// and then, where the kernel adds one, a residual, f32 as y; or what norm/row_summed.wgsl binds.
//
// A row is ROW vectors (lib/by_four.wgsl), or scalars where HIDDEN is no multiple of 4 (lib/by_element.wgsl).
// KEPT = COLUMNS: an invocation keeps its part of a row in registers. KEPT = 1: it reads it again.
// Grid: one workgroup per row. Each invocation owns COLUMNS columns.
@group(0) @binding(0) var<storage, read> x: array<Vector>;
@group(0) @binding(1) var<storage, read> weight: array<Vector>;
@group(0) @binding(3) var<uniform> step: Step;

fn run(lane: u32, workgroup: vec3<u32>, workgroups: vec3<u32>) {
  let t = flat_workgroup(workgroup, workgroups);
  if t >= step.tokens {
    return;
  }
  let base = t * ROW;
  var factors: array<Vector, KEPT>;
  var values: array<Vector, KEPT>;
  var squares = 0.0;
  for (var c = 0u; c < COLUMNS; c++) {
    let i = lane + c * WORKGROUP;
    let k = select(0u, c, KEPT == COLUMNS);
    if ROW % WORKGROUP == 0u || i < ROW {
      if KEPT == COLUMNS {
        factors[k] = weight_of(weight[i]);
      }
      values[k] = row(base + i);
      squares += total(values[k] * values[k]);
    }
  }
  let scale = inverseSqrt(reduce_sum(lane, squares) / f32(HIDDEN) + EPSILON);
  for (var c = 0u; c < COLUMNS; c++) {
    let i = lane + c * WORKGROUP;
    let k = select(0u, c, KEPT == COLUMNS);
    if ROW % WORKGROUP == 0u || i < ROW {
      if KEPT < COLUMNS {
        factors[k] = weight_of(weight[i]);
        values[k] = row(base + i);
      }
      store(base + i, values[k] * scale * factors[k]);
    }
  }
}
