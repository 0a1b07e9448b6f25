// rms_norm_forward: y[t, :] = x[t, :] / sqrt(mean(x[t, :]²) + EPSILON) · weight_of(weight)
// (Zhang and Sennrich, "Root mean square layer normalization", arXiv:1910.07467)
//
// RESIDUAL: the result is added to the residual stream (Gemma Team, arXiv:2408.00118).
//
// SUMMED: what is normalised is the residual stream with what a product split along K adds to it: the PARTS parts, in
// their order, and the stream from before. The sum is kept for what reads the stream later.
//
// A row is ROW vectors (lib/vector.wgsl).
// KEPT = COLUMNS: an invocation keeps its part of a row in registers. KEPT = 1: it reads it again.
// Grid: one workgroup per row. Each invocation owns COLUMNS columns.
#import lib/step
#import lib/flat
#import lib/vector
#import lib/reduce
#import lib/norm_weight

#binding x: array<Vector>       // read  f32 [tokens, HIDDEN], or SUMMED: PARTS of it
#binding weight: array<Vector>  // read  f32 [HIDDEN]
#if F16
#binding y: array<vec2<u32>>  // write  f32 [tokens, HIDDEN]   overwritten; F16: two to a word, for products that round it
#else
#binding y: array<Vector>  // write  f32 [tokens, HIDDEN]   overwritten; F16: two to a word, for products that round it
#endif
#binding step: Step  // uniform
#if RESIDUAL
#binding residual: array<Vector>  // read  f32 [tokens, HIDDEN]
#elif SUMMED
#binding before: array<Vector>  // read   f32 [tokens, HIDDEN]
#binding stream: array<Vector>  // write  f32 [tokens, HIDDEN]   overwritten
#endif

// What is normalised.
fn row(i: u32) -> Vector {
  var sum = x[i];
#if SUMMED
  #unroll for (var part = 1u; part < PARTS; part++) {
    sum += x[part * PART_ROW + i];
  }
  sum += before[i];
  stream[i] = sum;
#endif
  return sum;
}

fn store(i: u32, value: Vector) {
#if F16
  y[i] = vec2(pack2x16float(value.xy), pack2x16float(value.zw));
#elif RESIDUAL
  y[i] = value + residual[i];
#else
  y[i] = value;
#endif
}

fn run(lane: u32, workgroup: vec3<u32>, workgroups: vec3<u32>) {
  let t = flat_workgroup(workgroup, workgroups);
  if t >= step.tokens {
    return;
  }
  let base = t * ROW;
  var factors: array<Vector, KEPT>;
  var values: array<Vector, KEPT>;
  var squares = 0.0;
  #unroll for (var c = 0u; c < COLUMNS; c++) {
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
  #unroll for (var c = 0u; c < COLUMNS; c++) {
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
