// rms_norm_backward: with w = weight_of(weight), and r = 1 / sqrt(mean(x²) + EPSILON) for each row,
//   d_x      = r · (w · d_y) − x · r³ / HIDDEN · Σ (w · d_y · x)
//   partial  = Σ over ROWS rows of d_y · x · r       (summed into d_weight by column_sum)
//
// A row is ROW vectors (lib/vector.wgsl).
// KEPT = COLUMNS: an invocation keeps its part of a row in registers. KEPT = 1: it reads it again.
// Grid: one workgroup for ROWS rows. Each invocation owns COLUMNS columns of the weight gradient
// and keeps their sums in registers.
#import lib/step
#import lib/flat
#import lib/write_mode
#import lib/vector
#import lib/reduce
#import lib/norm_weight

#binding x: array<Vector>             // read        f32 [tokens, HIDDEN]
#binding weight: array<Vector>        // read        f32 [HIDDEN]
// d_y: f32 [tokens, HIDDEN], or SUMMED: PARTS of it, from a product split along K
#binding d_y: array<Vector>           // read
#binding d_x: array<Vector>           // read_write  f32 [tokens, HIDDEN]            by WRITE_MODE
#binding partial_sums: array<Vector>  // read_write  f32 [ceil(tokens / ROWS), HIDDEN]  overwritten
#binding step: Step                   // uniform

// The gradient of the norm's result.
fn slope(i: u32) -> Vector {
  var sum = d_y[i];
#if SUMMED
  #unroll for (var part = 1u; part < PARTS; part++) {
    sum += d_y[part * PART_ROW + i];
  }
#endif
  return sum;
}

fn run(lane: u32, workgroup: vec3<u32>, workgroups: vec3<u32>) {
  let block = flat_workgroup(workgroup, workgroups);
  let first = block * ROWS;
  if first >= step.tokens {
    return;
  }
  let add = adds(step.accumulate);
  var sums: array<Vector, COLUMNS>;
  #unroll for (var c = 0u; c < COLUMNS; c++) {
    sums[c] = Vector();
  }
  var factors: array<Vector, KEPT>;
  var values: array<Vector, KEPT>;
  var slopes: array<Vector, KEPT>;
  var before: array<Vector, KEPT>;
  let last = min(first + ROWS, step.tokens);
  for (var t = first; t < last; t++) {
    let base = t * ROW;
    var squares = 0.0;
    var projection = 0.0;
    #unroll for (var c = 0u; c < COLUMNS; c++) {
      let i = lane + c * WORKGROUP;
      let k = select(0u, c, KEPT == COLUMNS);
      if ROW % WORKGROUP == 0u || i < ROW {
        factors[k] = weight_of(weight[i]);
        values[k] = x[base + i];
        slopes[k] = slope(base + i);
        if add && KEPT == COLUMNS {
          before[k] = d_x[base + i];
        }
        squares += total(values[k] * values[k]);
        projection += total(values[k] * factors[k] * slopes[k]);
      }
    }
    let scale = inverseSqrt(reduce_sum(lane, squares) / f32(HIDDEN) + EPSILON);
    let pull = reduce_sum(lane, projection) * scale * scale * scale / f32(HIDDEN);
    #unroll for (var c = 0u; c < COLUMNS; c++) {
      let i = lane + c * WORKGROUP;
      let k = select(0u, c, KEPT == COLUMNS);
      if ROW % WORKGROUP == 0u || i < ROW {
        if KEPT < COLUMNS {
          factors[k] = weight_of(weight[i]);
          values[k] = x[base + i];
          slopes[k] = slope(base + i);
          if add {
            before[k] = d_x[base + i];
          }
        }
        sums[c] += slopes[k] * values[k] * scale;
        let gradient = scale * factors[k] * slopes[k] - values[k] * pull;
        if add {
          d_x[base + i] = before[k] + gradient;
        } else {
          d_x[base + i] = gradient;
        }
      }
    }
  }
  #unroll for (var c = 0u; c < COLUMNS; c++) {
    let i = lane + c * WORKGROUP;
    if i < ROW {
      partial_sums[block * ROW + i] = sums[c];
    }
  }
}
