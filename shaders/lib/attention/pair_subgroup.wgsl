// Pairs of neighbours in a subgroup, for attention's forward pass by matrices.

// The place of an invocation among all: that of its subgroup, and within it.
fn pair_place(lane: u32) -> u32 {
  return (subgroup_index * (WORKGROUP / subgroup_count) + subgroup_lane) % WORKGROUP;
}

// The larger value of a pair.
fn of_pair(panel: u32, at: u32, x: f32) -> f32 {
  return max(x, subgroupShuffleXor(x, 1u));
}
