// What lib/attention/pair_subgroup.wgsl does, through the sheet of scores: its place `at` and the next are the pair's.
fn pair_place(lane: u32) -> u32 {
  return lane;
}

fn of_pair(panel: u32, at: u32, x: f32) -> f32 {
  scores[panel][at + matrix_lane % 2u] = x;
  workgroupBarrier();
  return max(scores[panel][at], scores[panel][at + 1u]);
}
