// Which keys a query of tensors sees, and the reverse: intervals that the host has written into
// `mask`. The first keys and the ends of the intervals never fall from one row to the next.
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
