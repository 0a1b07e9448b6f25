// The keys that the query sees, of a cache that holds step.position + 1 positions: the last WINDOW.
#operand step: Step

fn item_count() -> u32 {
  return 1u;
}

// Position of the first one and the one behind the last.
fn seen_keys(item: u32) -> vec2<u32> {
  let end = step.position + 1u;
  return vec2(end - min(end, WINDOW), end);
}
