// Sums over the LANES invocations that share a key, through workgroup memory: any adapter. Every
// invocation must call, in uniform control flow; those that share a key get the same sums.
var<workgroup> lane_parts: array<f32, WORKGROUP * TURN_KEYS * GROUP>;
var<workgroup> lane_sums: array<f32, SLOTS * TURN_KEYS * GROUP>;

// Place of an invocation: the slot that takes a key a turn, its part of the slot's work.
fn lane_place(lane: u32) -> vec2<u32> {
  return vec2(lane / LANES, lane % LANES);
}

fn sum_lanes(lane: u32, parts: Scores) -> Scores {
  var sums = parts;
  #unroll for (var u = 0u; u < TURN_KEYS; u++) {
    #unroll for (var g = 0u; g < GROUP; g++) {
      lane_parts[(u * GROUP + g) * WORKGROUP + lane] = sums[u][g];
    }
  }
  workgroupBarrier();
  for (var i = lane; i < SLOTS * TURN_KEYS * GROUP; i += WORKGROUP) {
    var sum = lane_parts[i * LANES];
    for (var j = 1u; j < LANES; j++) {
      sum += lane_parts[i * LANES + j];
    }
    lane_sums[i] = sum;
  }
  workgroupBarrier();
  #unroll for (var u = 0u; u < TURN_KEYS; u++) {
    #unroll for (var g = 0u; g < GROUP; g++) {
      sums[u][g] = lane_sums[(u * GROUP + g) * SLOTS + lane / LANES];
    }
  }
  return sums;
}

// A slot is a team: TEAM = LANES.
fn team_max(x: f32) -> f32 {
  return x;
}

fn team_sum(x: vec4<f32>) -> vec4<f32> {
  return x;
}
