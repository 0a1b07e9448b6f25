// Each row's query sees the keys of its own text (lib/cache/append.wgsl). It sees at most WINDOW keys. The
// last of them is the row's own.
#operand documents: array<u32>
#operand step: Step

fn item_count() -> u32 {
  return step.tokens;
}

// Position of the first one and the one behind the last.
fn seen_keys(item: u32) -> vec2<u32> {
  let end = item - #documents[item] + 1u;
  return vec2(end - min(end, WINDOW), end);
}
