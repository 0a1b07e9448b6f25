// The keys that the query of a batch item sees: the item's interval in the mask, which has the
// window and the number of its keys in it.
#operand mask: array<u32>
#operand geometry: Geometry

fn item_count() -> u32 {
  return geometry.batch;
}

// Row of the first one and the one behind the last; the same twice where it sees none.
fn seen_keys(item: u32) -> vec2<u32> {
  let first = #mask[item * geometry.intervals.x];
  let end = min(#mask[item * geometry.intervals.x + 1u], geometry.key_rows);
  return vec2(first, max(first, end));
}
