// The `seen` keys that a query sees in at most SPLITS ranges of equal length, a multiple of RANGE_KEYS:
// few keys have few ranges, and more need no other kernel.
fn range_length(seen: u32) -> u32 {
  let even = (seen + SPLITS - 1u) / SPLITS;
  return max((even + RANGE_KEYS - 1u) / RANGE_KEYS, 1u) * RANGE_KEYS;
}

fn active_splits(seen: u32) -> u32 {
  let length = range_length(seen);
  return (seen + length - 1u) / length;
}
