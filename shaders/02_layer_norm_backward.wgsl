// layer_norm_backward: with m and r of a row as in layer_norm_forward, n = (x − m) · r and
// g = weight[0] · d_y,
//   d_x      = r · (g − mean(g) − n · mean(g · n))
//   partial  = Σ over ROWS rows of d_y · n, and of d_y   (summed into d_weight by column_sum)
//
// A row is ROW vectors (lib/vector.wgsl).
// Grid: one workgroup for ROWS rows. Each invocation owns COLUMNS columns of the weight gradient
// and keeps their sums in registers.
#import lib/step
#import lib/flat
#import lib/write_mode
#import lib/vector
#import lib/reduce

#binding x: array<Vector>             // read        f32 [tokens, HIDDEN]
#binding weight: array<Vector>        // read        f32 [2, HIDDEN]                 factors, then what is added
#binding d_y: array<Vector>           // read        f32 [tokens, HIDDEN]
#binding d_x: array<Vector>           // read_write  f32 [tokens, HIDDEN]            by WRITE_MODE
#binding partial_sums: array<Vector>  // read_write  f32 [ceil(tokens / ROWS), 2, HIDDEN]  overwritten
#binding step: Step                   // uniform

fn run(lane: u32, workgroup: vec3<u32>, workgroups: vec3<u32>) {
  let block = flat_workgroup(workgroup, workgroups);
  let first = block * ROWS;
  if first >= step.tokens {
    return;
  }
  let add = adds(step.accumulate);
  var of_factors: array<Vector, COLUMNS>;
  var of_offsets: array<Vector, COLUMNS>;
  #unroll for (var c = 0u; c < COLUMNS; c++) {
    of_factors[c] = Vector();
    of_offsets[c] = Vector();
  }
  let last = min(first + ROWS, step.tokens);
  for (var t = first; t < last; t++) {
    let base = t * ROW;
    var sum = 0.0;
    var slopes = 0.0;
    for (var i = lane; i < ROW; i += WORKGROUP) {
      sum += total(x[base + i]);
      slopes += total(weight[i] * d_y[base + i]);
    }
    let mean = reduce_sum(lane, sum) / f32(HIDDEN);
    let level = reduce_sum(lane, slopes) / f32(HIDDEN);
    var squares = 0.0;
    var projection = 0.0;
    for (var i = lane; i < ROW; i += WORKGROUP) {
      let value = x[base + i] - mean;
      squares += total(value * value);
      projection += total(value * weight[i] * d_y[base + i]);
    }
    let scale = inverseSqrt(reduce_sum(lane, squares) / f32(HIDDEN) + EPSILON);
    let pull = reduce_sum(lane, projection) * scale * scale / f32(HIDDEN);
    #unroll for (var c = 0u; c < COLUMNS; c++) {
      let i = lane + c * WORKGROUP;
      if i < ROW {
        let value = x[base + i] - mean;
        let slope = d_y[base + i];
        of_factors[c] += slope * value * scale;
        of_offsets[c] += slope;
        let gradient = scale * (weight[i] * slope - level - value * pull);
        if add {
          d_x[base + i] += gradient;
        } else {
          d_x[base + i] = gradient;
        }
      }
    }
  }
  #unroll for (var c = 0u; c < COLUMNS; c++) {
    let i = lane + c * WORKGROUP;
    if i < ROW {
      partial_sums[block * 2u * ROW + i] = of_factors[c];
      partial_sums[block * 2u * ROW + ROW + i] = of_offsets[c];
    }
  }
}
