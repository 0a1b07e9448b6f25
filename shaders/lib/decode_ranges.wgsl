// The keys that a query sees, the last WINDOW of a cache, in at most SPLITS ranges of equal length, a
// multiple of RANGE_KEYS: a short cache has few, and a longer one needs no other kernel.
fn seen_keys(key_count: u32) -> u32 {
  return min(key_count, WINDOW);
}

fn range_length(key_count: u32) -> u32 {
  let even = (seen_keys(key_count) + SPLITS - 1u) / SPLITS;
  return (even + RANGE_KEYS - 1u) / RANGE_KEYS * RANGE_KEYS;
}

fn active_splits(key_count: u32) -> u32 {
  let length = range_length(key_count);
  return (seen_keys(key_count) + length - 1u) / length;
}
