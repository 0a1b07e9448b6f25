// matmul, matmul_t, matmul_at: C = A·B, A·Bᵀ and Aᵀ·B on matrices that a subgroup holds, of operands rounded to
// f16, with sums in f32.
//
// The token dimension (M, or K for matmul_at) is a run-time value, the others are constants. Bindings and parts of K
// are those of 03_matmul_tiled.wgsl; `a` and `c` may lie in f16.
//
// Tiles of both operands lie in workgroup memory as they are stored, in panels of the WM rows or WN columns that a
// subgroup multiplies. A line of a panel ends with a pad of 8 cells, which keeps the loads of a matrix in different
// banks. The next tiles are loaded into registers while these are multiplied. A subgroup has WM×WN results. Where
// rows begin at multiples of 4 and no bias is added, those of a whole tile start as what they are added to, and are
// stored as matrices. Others leave through workgroup memory, a matrix of each subgroup at a time, to be added to what
// they are added to and cut at the edges. Where subgroups are narrower than the widest there are more than SUBGROUPS, and the others only load
// and store.
//
// With LOW_RANK the sums of the first part of K have an adapter's terms too, in more steps: with TERMS_BEHIND in a loop of
// their own, else in that over K (docs/decisions/076-adapters-in-few-dispatches.md).
//
// Grid: x over column tiles and splits, y over row tiles.
// Workgroup memory: two bytes for each cell of the tiles, four for each of MATRIX_M · RESULT_PITCH results a subgroup.
#import lib/step
#import lib/range
#import lib/flat
#import lib/write_mode
#import lib/linear/rows
#import lib/linear/b
#import lib/linear/operands
#import lib/linear/matrix_tiles
#if LOW_RANK
#import lib/linear/low_rank
#endif
#if GATED
#import lib/activation
#endif
#import lib/matrix

const CHECK_N: bool = N % BN != 0u;
const TILES_N: u32 = (N + BN - 1u) / BN;
#if GATED
// A tile has columns of gate, then those of up that belong to them. N counts both.
const TILE_COLUMNS: u32 = BN / 2u;
#else
const TILE_COLUMNS: u32 = BN;
#endif
const GROUPS_N: u32 = BN / WN;
const SUBGROUPS: u32 = BM / WM * GROUPS_N;

// An invocation's vectors of the next tiles: lines APART_A and APART_B apart, so that all places are one and a constant.
// Past the end of K it reads what a browser lets it.
fn load_tiles(
    lane: u32, m0: u32, n0: u32, k0: u32, column: u32,
    next_a: ptr<function, array<FetchedA, LOADS_A>>,
    next_b: ptr<function, array<FetchedB, LOADS_B>>) {
  #unroll for (var i = 0u; i < LOADS_A; i++) {
    (*next_a)[i] = load_a(lane / ACROSS_A + i * APART_A, lane % ACROSS_A, m0, k0, column);
  }
  #unroll for (var i = 0u; i < LOADS_B; i++) {
    (*next_b)[i] = load_b(lane / ACROSS_B + i * APART_B, lane % ACROSS_B, n0, k0);
  }
}

// Makes 0 of what was read past the end of K.
fn clear_past_end(
    lane: u32, k0: u32, k_end: u32,
    next_a: ptr<function, array<FetchedA, LOADS_A>>,
    next_b: ptr<function, array<FetchedB, LOADS_B>>) {
  #unroll for (var i = 0u; i < LOADS_A; i++) {
    if !within_a(lane / ACROSS_A + i * APART_A, lane % ACROSS_A, k0, k_end) {
      (*next_a)[i] = FetchedA();
    }
  }
  #unroll for (var i = 0u; i < LOADS_B; i++) {
    if !within_b(lane / ACROSS_B + i * APART_B, lane % ACROSS_B, k0, k_end) {
      (*next_b)[i] = FetchedB();
    }
  }
}

#if LOW_RANK
// Loads an adapter's terms. Rows past the end are read from where a browser lets it.
fn load_terms(
    lane: u32, m0: u32, n0: u32, k0: u32,
    next_a: ptr<function, array<FetchedA, LOADS_A>>,
    next_b: ptr<function, array<FetchedB, LOADS_B>>) {
  #unroll for (var i = 0u; i < LOADS_A; i++) {
    let four = lane % ACROSS_A * 4u;
    (*next_a)[i] = as_fetched_a(fetch_short(m0 + lane / ACROSS_A + i * APART_A, k0 + four));
  }
  #unroll for (var i = 0u; i < LOADS_B; i++) {
    let line = lane / ACROSS_B + i * APART_B;
    let four = lane % ACROSS_B * 4u;
#if DOTS
    (*next_b)[i] = as_fetched_b(fetch_low(n0 + line, k0 + four));
#else
    (*next_b)[i] = as_fetched_b(fetch_low(k0 + line, n0 + four));
#endif
  }
}
#endif

fn run(invocation: u32, workgroup: vec3<u32>, workgroups: vec3<u32>) {
  let lane = invocation % WORKGROUP;
  let rows = range_rows(step.tokens, range);
  let m_end = size_m(rows);
  let k_all = size_k(rows);
  let m0 = workgroup.y * BM;
  let n0 = workgroup.x % TILES_N * TILE_COLUMNS;
  let split = workgroup.x / TILES_N;
  let k_part = (k_all + SPLITS * BK - 1u) / (SPLITS * BK) * BK;
  let k_begin = split * k_part;
  let k_end = min(k_begin + k_part, k_all);
  let column = column_of_a(range);
  let own = own_group(lane);
  let group = own % SUBGROUPS;

  var next_a = array<FetchedA, LOADS_A>();
  var next_b = array<FetchedB, LOADS_B>();
  if k_begin < k_end {
    load_tiles(lane, m0, n0, k_begin, column, &next_a, &next_b);
  }
  var sums = array<array<Sums, MATRICES_N>, MATRICES_M>();
  let whole = DIRECT && m0 + BM <= m_end && n0 + BN <= N;
  let row = split * PART_ROWS + m0 + group / GROUPS_N * WM;
  let first = row * C_STRIDE + column_of_c(range) + n0 + group % GROUPS_N * WN;
  if whole && STARTS {
    #unroll for (var i = 0u; i < MATRICES_M; i++) {
      #unroll for (var j = 0u; j < MATRICES_N; j++) {
        sums[i][j] = start(first + i * MATRIX_M * C_STRIDE + j * MATRIX_N);
      }
    }
  }
#if TERMS_IN_LOOP
  // The first part of K goes on to an adapter's terms.
  let k_low = k_begin + (k_end - k_begin + BK - 1u) / BK * BK;
  let k_stop = select(k_end, k_low + SHORT, split == 0u);
  for (var k0 = k_begin; k0 < k_stop; k0 += BK) {
    if CHECK_K && k0 < k_end && k0 + BK > k_end {
#else
  for (var k0 = k_begin; k0 < k_end; k0 += BK) {
    if CHECK_K && k0 + BK > k_end {
#endif
      clear_past_end(lane, k0, k_end, &next_a, &next_b);
    }
    put_tiles(lane, &next_a, &next_b);
    workgroupBarrier();
    if k0 + BK < k_end {
      load_tiles(lane, m0, n0, k0 + BK, column, &next_a, &next_b);
    }
#if TERMS_IN_LOOP
    if k0 + BK >= k_low && k0 + BK < k_stop {
      load_terms(lane, m0, n0, k0 + BK - k_low, &next_a, &next_b);
    }
#endif
    multiply_tiles(group, &sums);
    workgroupBarrier();
  }
#if TERMS_BEHIND
  for (var k0 = select(SHORT, 0u, split == 0u); k0 < SHORT; k0 += BK) {
    load_terms(lane, m0, n0, k0, &next_a, &next_b);
    put_tiles(lane, &next_a, &next_b);
    workgroupBarrier();
    multiply_tiles(group, &sums);
    workgroupBarrier();
  }
#endif

  if whole {
    if own < SUBGROUPS {
      #unroll for (var i = 0u; i < MATRICES_M; i++) {
        #unroll for (var j = 0u; j < MATRICES_N; j++) {
          store_sums(first + i * MATRIX_M * C_STRIDE + j * MATRIX_N, sums[i][j]);
        }
      }
    }
    return;
  }
  // Invocations store for the subgroup that they would be in if all were the widest.
  let owner = lane / LANES;
  let owner_m = m0 + owner / GROUPS_N * WM;
  let owner_n = n0 + owner % GROUPS_N * WN;
  #unroll for (var i = 0u; i < MATRICES_M; i++) {
    #unroll for (var j = 0u; j < MATRICES_N; j++) {
      if own < SUBGROUPS {
        put_sums(group, sums[i][j]);
      }
      workgroupBarrier();
      #unroll for (var part = 0u; part < RESULTS; part++) {
        let v = lane % LANES + part * LANES;
        let row = v / (MATRIX_N / 4u);
        let four = v % (MATRIX_N / 4u) * 4u;
        let at = row * RESULT_PITCH + four;
        let m = owner_m + i * MATRIX_M + row;
        let n = owner_n + j * MATRIX_N + four;
#if GATED
        // The subgroup that has the gate's columns stores for that which has the columns of up.
        let stores = owner % GROUPS_N < GROUPS_N / 2u;
#else
        let stores = !CHECK_N || n < N;
#endif
        if m < m_end && stores {
          // Loaded here: a browser sees that the places are within the array.
          let x = results[owner][at];
          let y = results[owner][at + 1u];
          let z = results[owner][at + 2u];
          let w = results[owner][at + 3u];
#if GATED
          let up = (owner + GROUPS_N / 2u) % SUBGROUPS;
          let up_x = results[up][at];
          let up_y = results[up][at + 1u];
          let up_z = results[up][at + 2u];
          let up_w = results[up][at + 3u];
          store_c(m, n, 0u, activate_four(vec4(x, y, z, w)) * vec4(up_x, up_y, up_z, up_w));
#else
          store_c(split * PART_ROWS + m, n, column_of_c(range), vec4(x, y, z, w));
#endif
        }
      }
      workgroupBarrier();
    }
  }
}
