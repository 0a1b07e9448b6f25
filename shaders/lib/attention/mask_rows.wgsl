// Which keys a query of a batch's fused rows sees: those of its document up to itself, of them the
// last WINDOW if the attention is WINDOWED. The kernel binds `documents` and `step`; rows are rows of
// the batch, keys are counted from the beginning of the cache (or of the batch, where step.position
// is 0). There is one batch item.
fn query_count() -> u32 {
  return step.tokens;
}

fn key_count() -> u32 {
  return step.tokens;
}

// First key that the query of `row` sees.
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

// The batch item and the head (or owner) of a workgroup's y.
fn place_of(y: u32, owners: u32) -> vec2<u32> {
  return vec2(0u, y);
}

// Batch item, row and head (or owner) of an invocation that has one of each to itself.
fn flat_place(id: u32, owners: u32) -> vec3<u32> {
  return vec3(0u, id / owners, id % owners);
}
