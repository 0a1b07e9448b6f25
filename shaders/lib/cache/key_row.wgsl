// Where the key-value cache keeps a position. With RINGED it has room for RING rows, of which the
// newest position takes the oldest one's: RING is at least the window and a chunk of a prompt
// together, less one, so that no row is lost which a query still sees. A text shorter than that never wraps,
// so that a cache of fewer rows needs no other RING.
fn key_row(position: u32) -> u32 {
  if RINGED {
    return position % RING;
  }
  return position;
}

// How many rows hold something once the cache has seen `positions` positions.
fn rows_in_use(positions: u32) -> u32 {
  if RINGED {
    return min(positions, RING);
  }
  return positions;
}
