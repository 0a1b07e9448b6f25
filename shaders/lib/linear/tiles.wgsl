// Loads of the tiles of 03_matmul_tiled.wgsl into registers, and from there to workgroup memory.
#if OVER_TOKENS
// Tiles of `a`, stored [K, M].
// Vector `i` of the tile, along M.
fn load_a(i: u32, m0: u32, k0: u32, m_end: u32, k_end: u32, column: u32) -> vec4<f32> {
  let k = k0 + i / (BM / 4u);
  let m = m0 + i % (BM / 4u) * 4u;
  var value = vec4(0.0);
  if (!CHECK_M || m < m_end) && (!CHECK_K || k < k_end) {
    value = fetch_a(k, m, column);
  }
  return value;
}

// As where rows are stored [M, K], below.
fn step_a() -> u32 {
  return BK * A_STRIDE;
}

fn place_a(lane: u32, m0: u32, k0: u32, column: u32) -> u32 {
  return (k0 + lane / (BM / 4u)) * A_STRIDE + column + m0 + lane % (BM / 4u) * 4u;
}

fn walk_a(at: u32, i: u32) -> vec4<f32> {
  return fetch_a(i / (BM / 4u), at, 0u);
}

fn put_a(i: u32, value: vec4<f32>) {
  let k = i / (BM / 4u);
  let vector = i % (BM / 4u);
  tile_a[vector / LANES_M][k % 4u * VECTORS_K + k / 4u][vector % LANES_M] = value;
}
#else
// Tiles of `a`, stored [M, K]: transposed on their way. PAD_A vectors between the rows of four steps of
// K keep the stores of a subgroup in different banks.
// Vector `i` of the tile, along K. Rows past the end are read from the last one and not stored.
fn load_a(i: u32, m0: u32, k0: u32, m_end: u32, k_end: u32, column: u32) -> vec4<f32> {
  let k = k0 + i % VECTORS_K * 4u;
  var value = vec4(0.0);
  if !CHECK_K || k < k_end {
    value = fetch_a(min(m0 + i / VECTORS_K, m_end - 1u), k, column);
  }
  return value;
}

// Element of `a` where an invocation's first vector of a tile begins; a step of K goes step_a() on. Tiles that lie
// whole inside K are loaded from there: rows past the end from wherever they would be.
fn step_a() -> u32 {
  return BK;
}

fn place_a(lane: u32, m0: u32, k0: u32, column: u32) -> u32 {
  return (m0 + lane / VECTORS_K) * A_STRIDE + column + k0 + lane % VECTORS_K * 4u;
}

fn walk_a(at: u32, i: u32) -> vec4<f32> {
  return fetch_a(i / VECTORS_K, at, 0u);
}

fn put_a(i: u32, value: vec4<f32>) {
  let m = i / VECTORS_K;
  let vector = m / 4u;
  let lane = vector % LANES_M;
  tile_a[vector / LANES_M][0u * VECTORS_K + i % VECTORS_K][lane][m % 4u] = value.x;
  tile_a[vector / LANES_M][1u * VECTORS_K + i % VECTORS_K][lane][m % 4u] = value.y;
  tile_a[vector / LANES_M][2u * VECTORS_K + i % VECTORS_K][lane][m % 4u] = value.z;
  tile_a[vector / LANES_M][3u * VECTORS_K + i % VECTORS_K][lane][m % 4u] = value.w;
}
#endif

#if DOTS
// Tiles of `b`, stored [N, K]: transposed on their way.
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
fn step_b() -> u32 {
  return BK;
}

fn place_b(lane: u32, n0: u32, k0: u32) -> u32 {
  return (n0 + lane / VECTORS_K) * B_STRIDE + k0 + lane % VECTORS_K * 4u;
}

fn walk_b(at: u32, i: u32) -> FetchedB {
  return fetch_b(i / VECTORS_K, at);
}

fn put_b(i: u32, fetched: FetchedB) {
  let value = elements_b(fetched);
  let n = i / VECTORS_K;
  let vector = n / 4u;
  let lane = vector % LANES_N;
  tile_b[vector / LANES_N][0u * VECTORS_K + i % VECTORS_K][lane][n % 4u] = value.x;
  tile_b[vector / LANES_N][1u * VECTORS_K + i % VECTORS_K][lane][n % 4u] = value.y;
  tile_b[vector / LANES_N][2u * VECTORS_K + i % VECTORS_K][lane][n % 4u] = value.z;
  tile_b[vector / LANES_N][3u * VECTORS_K + i % VECTORS_K][lane][n % 4u] = value.w;
}
#else
// Tiles of `b`, stored [K, N].
// Vector `i` of the tile, along N.
fn load_b(i: u32, n0: u32, k0: u32, k_end: u32) -> FetchedB {
  let k = k0 + i / (BN / 4u);
  let n = n0 + i % (BN / 4u) * 4u;
  var value = FetchedB();
  if (!CHECK_N || n < N) && (!CHECK_K || k < k_end) {
    value = fetch_b(k, n);
  }
  return value;
}

// As place_a and walk_a.
fn step_b() -> u32 {
  return BK * B_STRIDE;
}

fn place_b(lane: u32, n0: u32, k0: u32) -> u32 {
  return (k0 + lane / (BN / 4u)) * B_STRIDE + n0 + lane % (BN / 4u) * 4u;
}

fn walk_b(at: u32, i: u32) -> FetchedB {
  return fetch_b(i / (BN / 4u), at);
}

fn put_b(i: u32, fetched: FetchedB) {
  let k = i / (BN / 4u);
  let vector = i % (BN / 4u);
  tile_b[vector / LANES_N][k % 4u * VECTORS_K + k / 4u][vector % LANES_N] = elements_b(fetched);
}
#endif

#if LOW_RANK
// Vector `i` of the tiles of an adapter's terms, as load_a and load_b.
fn load_short(i: u32, m0: u32, k0: u32, m_end: u32) -> vec4<f32> {
  return fetch_short(min(m0 + i / VECTORS_K, m_end - 1u), k0 + i % VECTORS_K * 4u);
}

#if DOTS
fn load_low(i: u32, n0: u32, k0: u32) -> FetchedB {
  return as_fetched_b(fetch_low(n0 + i / VECTORS_K, k0 + i % VECTORS_K * 4u));
}
#else
fn load_low(i: u32, n0: u32, k0: u32) -> FetchedB {
  return as_fetched_b(fetch_low(k0 + i / (BN / 4u), n0 + i % (BN / 4u) * 4u));
}
#endif

// Adds the products of a step's tiles, as the loop over K does.
fn add_terms(lane_m: u32, lane_n: u32, sums: ptr<function, array<array<vec4<f32>, RIGHT_VECTORS>, TM>>) {
  #unroll for (var v = 0u; v < VECTORS_K; v++) {
    #unroll for (var q = 0u; q < COMPONENTS; q++) {
      var right = array<vec4<f32>, RIGHT_VECTORS>();
      #unroll for (var j = 0u; j < RIGHT_VECTORS; j++) {
        right[j] = tile_b[j][q * VECTORS_K + v][lane_n];
      }
      #unroll for (var i = 0u; i < LEFT_VECTORS; i++) {
        let left = tile_a[i][q * VECTORS_K + v][lane_m];
        #unroll for (var j = 0u; j < RIGHT_VECTORS; j++) {
          (*sums)[i * 4u][j] = fma(vec4(left.x), right[j], (*sums)[i * 4u][j]);
          (*sums)[i * 4u + 1u][j] = fma(vec4(left.y), right[j], (*sums)[i * 4u + 1u][j]);
          (*sums)[i * 4u + 2u][j] = fma(vec4(left.z), right[j], (*sums)[i * 4u + 2u][j]);
          (*sums)[i * 4u + 3u][j] = fma(vec4(left.w), right[j], (*sums)[i * 4u + 3u][j]);
        }
      }
    }
  }
}
#endif
