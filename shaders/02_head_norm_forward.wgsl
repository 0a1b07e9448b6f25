// head_norm_forward: norms each query and key head of a row by itself; value heads are copied.
//   y[head] = x[head] / sqrt(mean(x[head]²) + EPSILON) · weight_of(weight of queries or keys)
// (Henry et al., "Query-key normalization for transformers", arXiv:2010.04245, with RMSNorm)
//
// A head is UNITS vectors (lib/vector.wgsl). A team has a head, and an invocation COLUMNS of its vectors.
// Grid: one workgroup per TEAM_COUNT heads of a row.
#import lib/step
#import lib/flat
#import lib/vector
#import lib/team
#import lib/norm_weight

#binding x: array<Vector>       // read     f32 [tokens, ROW_HEADS · HEAD_DIM]  HEADS query, KV_HEADS key, KV_HEADS value heads
#binding weight: array<Vector>  // read     f32 [2, HEAD_DIM]                   of queries, of keys
#binding y: array<Vector>       // write    f32 [tokens, ROW_HEADS · HEAD_DIM]  overwritten
#binding step: Step             // uniform

const HEAD_GROUPS: u32 = (ROW_HEADS + TEAM_COUNT - 1u) / TEAM_COUNT;

fn run(lane: u32, workgroup: vec3<u32>, workgroups: vec3<u32>) {
  let id = flat_workgroup(workgroup, workgroups);
  let t = id / HEAD_GROUPS;
  if t >= step.tokens {
    return;
  }
  let head = id % HEAD_GROUPS * TEAM_COUNT + lane / TEAM;
  let base = (t * ROW_HEADS + head) * UNITS;
  var own = array<Vector, COLUMNS>();
  var squares = 0.0;
  #unroll for (var c = 0u; c < COLUMNS; c++) {
    let i = lane % TEAM + c * TEAM;
    if head < ROW_HEADS && i < UNITS {
      own[c] = x[base + i];
      squares += total(own[c] * own[c]);
    }
  }
  let scale = inverseSqrt(team_sum(lane, vec2(squares, 0.0)).x / f32(HEAD_DIM) + EPSILON);
  let weights = select(0u, UNITS, head >= HEADS);
  #unroll for (var c = 0u; c < COLUMNS; c++) {
    let i = lane % TEAM + c * TEAM;
    if head < ROW_HEADS && i < UNITS {
      if head < HEADS + KV_HEADS {
        own[c] *= scale * weight_of(weight[weights + i]);
      }
      y[base + i] = own[c];
    }
  }
}
