// Sums over the LANES invocations that share a key by subgroup shuffles, with no barrier. LANES is
// at most TEAM, that at most the narrowest subgroup, and all are powers of two, so that neither a slot nor a team
// crosses a subgroup. LANES is 2 to the power of LANE_STEPS, TEAM that of LANE_STEPS + TEAM_STEPS.
// Subgroup ids come from the builtin, never from dividing the invocation index.
var<private> subgroup_index: u32;
var<private> subgroup_count: u32;
var<private> subgroup_lane: u32;

// Place of an invocation: the slot that takes a key a turn, its part of the slot's work.
fn lane_place(lane: u32) -> vec2<u32> {
  let slots = WORKGROUP / subgroup_count / LANES;
  return vec2(subgroup_index * slots + subgroup_lane / LANES, subgroup_lane % LANES);
}

fn sum_lanes(lane: u32, parts: Scores) -> Scores {
  var sums = parts;
  #unroll for (var u = 0u; u < TURN_KEYS; u++) {
    #unroll for (var g = 0u; g < GROUP; g++) {
      #unroll for (var s = 0u; s < LANE_STEPS; s++) {
        sums[u][g] += subgroupShuffleXor(sums[u][g], LANES >> (s + 1u));
      }
    }
  }
  return sums;
}

// Over the slots of TEAM neighbours.
fn team_max(x: f32) -> f32 {
  var most = x;
  #unroll for (var s = 0u; s < TEAM_STEPS; s++) {
    most = max(most, subgroupShuffleXor(most, LANES << s));
  }
  return most;
}

fn team_sum(x: vec4<f32>) -> vec4<f32> {
  var sum = x;
  #unroll for (var s = 0u; s < TEAM_STEPS; s++) {
    sum += subgroupShuffleXor(sum, LANES << s);
  }
  return sum;
}
