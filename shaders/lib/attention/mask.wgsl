// Which keys a query sees, and which queries see a key.
#if TENSORS
// Of tensors: intervals that the host has written into `mask`. The first keys and the ends of the intervals never fall
// from one row to the next.
#import lib/attention/geometry

fn query_count() -> u32 {
  return geometry.query_rows;
}

fn key_count() -> u32 {
  return geometry.key_rows;
}

fn first_key(item: u32, row: u32) -> u32 {
  return mask[item * geometry.intervals.x + 2u * row];
}

fn end_key(item: u32, row: u32) -> u32 {
  return mask[item * geometry.intervals.x + 2u * row + 1u];
}

fn first_query(item: u32, key: u32) -> u32 {
  return mask[geometry.intervals.w + item * geometry.intervals.y + 2u * key];
}

fn end_query(item: u32, key: u32) -> u32 {
  return mask[geometry.intervals.w + item * geometry.intervals.y + 2u * key + 1u];
}

// The batch item and the head (or owner) of a workgroup's y.
fn place_of(y: u32, owners: u32) -> vec2<u32> {
  return vec2(y / owners, y % owners);
}

// Batch item, row and head (or owner) of an invocation that has one of each to itself.
fn flat_place(id: u32, owners: u32) -> vec3<u32> {
  let row = id / (owners * geometry.batch);
  let rest = id % (owners * geometry.batch);
  return vec3(rest / owners, row, rest % owners);
}
#else
// Of a batch's fused rows: the keys of the query's document up to itself, of them the last WINDOW if the attention is
// WINDOWED. The kernel binds `documents` and `step`; rows are rows of the batch, keys are counted from the beginning of
// the cache (or of the batch, where step.position is 0). There is one batch item.
fn query_count() -> u32 {
  return step.tokens;
}

fn key_count() -> u32 {
  return step.tokens;
}

fn first_key(item: u32, row: u32) -> u32 {
  let start = documents[row];
  if WINDOWED {
    return max(start, step.position + row + 1u - min(WINDOW, step.position + row + 1u));
  }
  return start;
}

// One past the last key that the query of `row` sees.
fn end_key(item: u32, row: u32) -> u32 {
  return step.position + row + 1u;
}

#if ENDS
// Ends of documents lie DOCUMENT_ENDS elements after the starts.
fn first_query(item: u32, key: u32) -> u32 {
  return key;
}

fn end_query(item: u32, key: u32) -> u32 {
  let document_end = documents[DOCUMENT_ENDS + key];
  if WINDOWED {
    return min(document_end, key + min(WINDOW, document_end));
  }
  return document_end;
}
#endif

fn place_of(y: u32, owners: u32) -> vec2<u32> {
  return vec2(0u, y);
}

fn flat_place(id: u32, owners: u32) -> vec3<u32> {
  return vec3(0u, id / owners, id % owners);
}
#endif

// The first of the keys that a query sees and their number: one comparison, key − first < number, says
// whether it sees a key.
fn seen_keys(item: u32, row: u32) -> vec2<u32> {
  let first = first_key(item, row);
  return vec2(first, max(end_key(item, row), first) - first);
}
