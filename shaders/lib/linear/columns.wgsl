// Columns of a tile that follow each other in the matrix.

// Vector `i` of the tile, along K. Columns past the end are read from the last one and not stored.
fn load_b(i: u32, n0: u32, k0: u32, k_end: u32) -> FetchedB {
  let k = k0 + i % VECTORS_K * 4u;
  var value = FetchedB();
  if !CHECK_K || k < k_end {
    value = fetch_b(min(n0 + i / VECTORS_K, N - 1u), k);
  }
  return value;
}

// As place_a and walk_a.
fn place_b(lane: u32, n0: u32, k0: u32) -> u32 {
  return (n0 + lane / VECTORS_K) * B_STRIDE + k0 + lane % VECTORS_K * 4u;
}

fn walk_b(at: u32, i: u32) -> FetchedB {
  return fetch_b(i / VECTORS_K, at);
}
