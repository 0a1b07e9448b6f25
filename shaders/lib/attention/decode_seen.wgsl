// Which keys the queries of decode attention see, and how many ranges of keys have work.
#if TENSORS
// The query of a batch item sees the item's interval in the mask, which has the window and the number of its keys in it.
#operand mask: array<u32>
#operand geometry: Geometry
#import lib/attention/geometry
#else
#import lib/step
#operand step: Step
#if BATCHED
// Each row's query sees the keys of its own text (04_cache_append.wgsl).
#operand documents: array<u32>
#endif
#endif

// Row or position of the first key seen and of the one behind the last; the same twice where there is none. A cache holds
// step.position + 1 positions, or those of a row's text; the last of them is the row's own. A query sees the last WINDOW.
fn seen_keys(item: u32) -> vec2<u32> {
#if TENSORS
  let first = #mask[item * geometry.intervals.x];
  let end = min(#mask[item * geometry.intervals.x + 1u], geometry.key_rows);
  return vec2(first, max(first, end));
#else
#if BATCHED
  let end = item - #documents[item] + 1u;
#else
  let end = step.position + 1u;
#endif
  return vec2(end - min(end, WINDOW), end);
#endif
}

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
