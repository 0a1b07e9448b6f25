// head_norm_backward: with w = weight_of(weight), and r = 1 / sqrt(mean(x²) + EPSILON) for each query and key head
// of a row,
//   d_x      = r · (w · d_y) − x · r³ / HEAD_DIM · Σ (w · d_y · x)
//   partial  = Σ over ROWS rows and their heads of d_y · x · r   (summed into d_weight by column_sum)
// Gradients of value heads stay.
//
// A head is UNITS vectors (lib/vector.wgsl). A team has one head after the other, and an invocation COLUMNS of its
// vectors. It keeps the sums of both weights' gradients for its columns. Teams add theirs up at the end.
// Grid: one workgroup per ROWS rows.
// Workgroup memory: 8 bytes an invocation, and two vectors.
#import lib/step
#import lib/flat
#import lib/vector
#import lib/team
#import lib/norm_weight

#binding x: array<Vector>             // read        f32 [tokens, ROW_HEADS · HEAD_DIM]  HEADS query, KV_HEADS key, KV_HEADS value heads
#binding weight: array<Vector>        // read        f32 [2, HEAD_DIM]                   of queries, of keys
#binding d: array<Vector>             // read_write  f32 [tokens, ROW_HEADS · HEAD_DIM]  d_y, overwritten by d_x
#binding partial_sums: array<Vector>  // read_write  f32 [ceil(tokens / ROWS), 2, HEAD_DIM]  overwritten
#binding step: Step                   // uniform

const NORMED: u32 = HEADS + KV_HEADS;

// Of queries, then of keys.
var<workgroup> column_parts: array<array<Vector, WORKGROUP>, 2>;

// Adds up what the teams have of a column of both weights, and stores it.
fn store_sums(lane: u32, of_queries: Vector, of_keys: Vector, row: u32, column: u32) {
  column_parts[0][lane] = of_queries;
  column_parts[1][lane] = of_keys;
  workgroupBarrier();
  // Helpers add up every HELPERS-th team's.
  for (var i = lane; i < 2u * HELPERS * TEAM; i += WORKGROUP) {
    let kind = i / (HELPERS * TEAM);
    let helper = i % (HELPERS * TEAM);
    var own = column_parts[kind][helper];
    for (var other = helper + HELPERS * TEAM; other < WORKGROUP; other += HELPERS * TEAM) {
      own += column_parts[kind][other];
    }
    column_parts[kind][helper] = own;
  }
  workgroupBarrier();
  if column < UNITS {
    // The first team has queries, the last one keys.
    for (var kind = 0u; kind < 2u; kind++) {
      if lane / TEAM == kind * (TEAM_COUNT - 1u) {
        var own = column_parts[kind][lane % TEAM];
        for (var other = lane % TEAM + TEAM; other < HELPERS * TEAM; other += TEAM) {
          own += column_parts[kind][other];
        }
        partial_sums[row + kind * UNITS + column] = own;
      }
    }
  }
  workgroupBarrier();
}

fn run(lane: u32, workgroup: vec3<u32>, workgroups: vec3<u32>) {
  let block = flat_workgroup(workgroup, workgroups);
  let first = block * ROWS;
  if first >= step.tokens {
    return;
  }
  let member = lane % TEAM;
  var of_queries = array<Vector, COLUMNS>();
  var of_keys = array<Vector, COLUMNS>();
  let last = min(first + ROWS, step.tokens);
  for (var t = first; t < last; t++) {
    for (var head0 = 0u; head0 < NORMED; head0 += TEAM_COUNT) {
      let head = head0 + lane / TEAM;
      let is_key = head >= HEADS;
      let base = (t * ROW_HEADS + head) * UNITS;
      let weights = select(0u, UNITS, is_key);
      var own = array<Vector, COLUMNS>();
      var weighted = array<Vector, COLUMNS>();
      var gradient = array<Vector, COLUMNS>();
      var sums = vec2<f32>();
      #unroll for (var c = 0u; c < COLUMNS; c++) {
        let i = member + c * TEAM;
        if head < NORMED && i < UNITS {
          own[c] = x[base + i];
          gradient[c] = d[base + i];
          weighted[c] = weight_of(weight[weights + i]) * gradient[c];
          sums += vec2(total(own[c] * own[c]), total(own[c] * weighted[c]));
        }
      }
      let of_team = team_sum(lane, sums);
      let scale = inverseSqrt(of_team.x / f32(HEAD_DIM) + EPSILON);
      let pull = of_team.y * scale * scale * scale / f32(HEAD_DIM);
      #unroll for (var c = 0u; c < COLUMNS; c++) {
        let i = member + c * TEAM;
        if head < NORMED && i < UNITS {
          d[base + i] = scale * weighted[c] - own[c] * pull;
          let part = gradient[c] * own[c] * scale;
          of_keys[c] += select(Vector(), part, is_key);
          of_queries[c] += select(part, Vector(), is_key);
        }
      }
    }
  }
  let row = block * 2u * UNITS;
  #unroll for (var c = 0u; c < COLUMNS; c++) {
    store_sums(lane, of_queries[c], of_keys[c], row, member + c * TEAM);
  }
}
