// No key apart from the ranges of lib/matvec/team_ranges.wgsl.
fn keys_in_ranges() -> u32 {
  let keys = seen_keys(0u);
  return keys.y - keys.x;
}

fn merging_place(lane: u32) -> u32 {
  return lane;
}

fn newest(head: u32, vector: u32) -> RangePart {
  return RangePart(MASKED, 0.0, vec4(0.0));
}
