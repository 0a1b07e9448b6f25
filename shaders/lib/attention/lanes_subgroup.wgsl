// Sums over the LANES invocations that share a key by subgroup shuffles, with no barrier. LANES is
// at most the narrowest subgroup, and both are powers of two, so a slot never crosses a subgroup.
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
  for (var u = 0u; u < TURN_KEYS; u++) {
    for (var g = 0u; g < GROUP; g++) {
      for (var distance = LANES / 2u; distance > 0u; distance /= 2u) {
        sums[u][g] += subgroupShuffleXor(sums[u][g], distance);
      }
    }
  }
  return sums;
}
