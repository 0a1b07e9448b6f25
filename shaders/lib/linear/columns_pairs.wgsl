// Columns of a tile that belong together in pairs, APART columns of the matrix from each other. In the matrix a run of
// APART columns that begin pairs is followed by as many that end them. The first half of a tile has columns that begin
// pairs, the second half those that end them, so that an invocation has both sums of a pair.
const HALF_TILE: u32 = BN / 2u;

// The column of the matrix that begins a pair.
fn column_of_pair(pair: u32) -> u32 {
  return pair / APART * (2u * APART) + pair % APART;
}

// The column of the matrix at a place of the tile.
fn column_at(n0: u32, at: u32) -> u32 {
  return column_of_pair(n0 / 2u + at % HALF_TILE) + at / HALF_TILE * APART;
}

// As in columns.wgsl.
fn load_b(i: u32, n0: u32, k0: u32, k_end: u32) -> FetchedB {
  let k = k0 + i % VECTORS_K * 4u;
  var value = FetchedB();
  if !CHECK_K || k < k_end {
    value = fetch_b(min(column_at(n0, i / VECTORS_K), N - 1u), k);
  }
  return value;
}

fn place_b(lane: u32, n0: u32, k0: u32) -> u32 {
  return column_at(n0, lane / VECTORS_K) * B_STRIDE + k0 + lane % VECTORS_K * 4u;
}

// All invocations load half of a tile or all of it at once: the next load has the other half.
fn walk_b(at: u32, i: u32) -> FetchedB {
  return fetch_b(i / VECTORS_K / HALF_TILE * APART, at);
}
