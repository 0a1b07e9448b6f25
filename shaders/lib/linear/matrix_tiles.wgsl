// Loads of the tiles of 03_matmul_matrix.wgsl. What lies past the end of M or N belongs to results that are not stored.
#if OVER_TOKENS
// Tiles of `a`, stored [K, M], for products of matrices: a line for each of K.
fn load_a(line: u32, four: u32, m0: u32, k0: u32, column: u32) -> FetchedA {
  return fetch_a(k0 + line, m0 + four * 4u, column);
}

fn within_a(line: u32, four: u32, k0: u32, k_end: u32) -> bool {
  return k0 + line < k_end;
}
#else
// Tiles of `a`, stored [M, K], for products of matrices: a line for each of M.
fn load_a(line: u32, four: u32, m0: u32, k0: u32, column: u32) -> FetchedA {
  return fetch_a(m0 + line, k0 + four * 4u, column);
}

fn within_a(line: u32, four: u32, k0: u32, k_end: u32) -> bool {
  return k0 + four * 4u < k_end;
}
#endif

#if DOTS
// Tiles of `b`, stored [N, K], for products of matrices: a line for each of N.
fn load_b(line: u32, unit: u32, n0: u32, k0: u32) -> FetchedB {
#if GATED
  // Rows of gate, then those of up, N / 2 behind them.
  return fetch_b(n0 + line + select(0u, (N - BN) / 2u, line >= BN / 2u), k0 + unit * UNIT_B);
#else
  return fetch_b(n0 + line, k0 + unit * UNIT_B);
#endif
}

fn within_b(line: u32, unit: u32, k0: u32, k_end: u32) -> bool {
  return k0 + unit * UNIT_B < k_end;
}
#else
// Tiles of `b`, stored [K, N], for products of matrices: a line for each of K.
fn load_b(line: u32, unit: u32, n0: u32, k0: u32) -> FetchedB {
  return fetch_b(k0 + line, n0 + unit * UNIT_B);
}

fn within_b(line: u32, unit: u32, k0: u32, k_end: u32) -> bool {
  return k0 + line < k_end;
}
#endif

#if !B_UNITS
// Of a unit of four elements.
fn quad_b(fetched: FetchedB, q: u32) -> vec4<f32> {
  return elements_b(fetched);
}
#endif
