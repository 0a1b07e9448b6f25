// Which keys a query sees: those of its document up to itself, of them the last WINDOW if the
// attention is WINDOWED. The kernel binds `documents` and `step`; rows are rows of the batch, keys
// are counted from the beginning of the cache (or of the batch, where step.position is 0).
fn first_key(row: u32) -> u32 {
  let start = documents[row];
  if WINDOWED {
    return max(start, step.position + row + 1u - min(WINDOW, step.position + row + 1u));
  }
  return start;
}

fn last_key(row: u32) -> u32 {
  return step.position + row;
}

// One past the last query that may see `key`, of a batch whose documents end at `document_end`.
fn query_end(key: u32, document_end: u32) -> u32 {
  if WINDOWED {
    return min(document_end, key + min(WINDOW, document_end));
  }
  return document_end;
}
