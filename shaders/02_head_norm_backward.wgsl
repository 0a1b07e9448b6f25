// head_norm_backward: with w = weight_of(weight), and r = 1 / sqrt(mean(x²) + EPSILON) for each query and key head
// of a row,
//   d_x      = r · (w · d_y) − x · r³ / HEAD_DIM · Σ (w · d_y · x)
//   partial  = Σ over ROWS rows and their heads of d_y · x · r   (summed into d_weight by column_sum)
// Gradients of value heads stay.
//
// Grid: one workgroup per ROWS rows. Each invocation owns COLUMNS columns of both weights' gradients
// and keeps their sums in registers, with its columns of a head: all are loaded once.
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

// An invocation's columns of a head's x and d_y; those past the head are 0.
fn load_head(lane: u32, base: u32, own: ptr<function, array<vec2<f32>, COLUMNS>>) {
  #unroll for (var c = 0u; c < COLUMNS; c++) {
    let i = lane + c * WORKGROUP;
    (*own)[c] = vec2(0.0);
    if i < HEAD_DIM {
      (*own)[c] = vec2(x[base + i], d[base + i]);
    }
  }
}

fn run(lane: u32, workgroup: vec3<u32>, workgroups: vec3<u32>) {
  let block = flat_workgroup(workgroup, workgroups);
  let first = block * ROWS;
  if first >= step.tokens {
    return;
  }
  var sums = array<vec2<f32>, COLUMNS>();
  // Of queries and keys.
  var weights = array<vec2<f32>, COLUMNS>();
  #unroll for (var c = 0u; c < COLUMNS; c++) {
    let i = lane + c * WORKGROUP;
    if i < HEAD_DIM {
      weights[c] = vec2(weight_of(weight[i]), weight_of(weight[HEAD_DIM + i]));
    }
  }
  let last = min(first + ROWS, step.tokens);
  for (var t = first; t < last; t++) {
    // The next head is loaded while this one's sums are added up.
    var next = array<vec2<f32>, COLUMNS>();
    load_head(lane, t * STRIDE, &next);
    for (var head = 0u; head < HEADS + KV_HEADS; head++) {
      let base = t * STRIDE + head * HEAD_DIM;
      let is_key = head >= HEADS;
      var own = next;
      if head + 1u < HEADS + KV_HEADS {
        load_head(lane, base + HEAD_DIM, &next);
      }
      var squares = 0.0;
      var projection = 0.0;
      #unroll for (var c = 0u; c < COLUMNS; c++) {
        squares += own[c].x * own[c].x;
        projection += own[c].x * select(weights[c].x, weights[c].y, is_key) * own[c].y;
      }
      let scale = inverseSqrt(reduce_sum(lane, squares) / f32(HEAD_DIM) + EPSILON);
      let pull = reduce_sum(lane, projection) * scale * scale * scale / f32(HEAD_DIM);
      #unroll for (var c = 0u; c < COLUMNS; c++) {
        let i = lane + c * WORKGROUP;
        if i < HEAD_DIM {
          sums[c] += select(vec2(1.0, 0.0), vec2(0.0, 1.0), is_key) * (own[c].y * own[c].x * scale);
          d[base + i] = scale * select(weights[c].x, weights[c].y, is_key) * own[c].y - own[c].x * pull;
        }
      }
    }
  }
  #unroll for (var c = 0u; c < COLUMNS; c++) {
    let i = lane + c * WORKGROUP;
    if i < HEAD_DIM {
      partial_sums[block * 2u * HEAD_DIM + i] = sums[c].x;
      partial_sums[block * 2u * HEAD_DIM + HEAD_DIM + i] = sums[c].y;
    }
  }
}
