// matmul, matmul_t, matmul_at: C = A·B, A·Bᵀ and Aᵀ·B by tiles in workgroup memory, TM×TN results
// an invocation in registers.
//
// The token dimension (M, or K for matmul_at) is a run-time value, the others are constants. With
// more than one of SPLITS a workgroup sums over its part of K alone, and `c` is f32
// [SPLITS, PART_ROWS, C_STRIDE]: 03_linear_sum.wgsl adds the parts up.
//
// Both tiles lie in workgroup memory with K outermost, so that a step of K is an outer product of
// a few vectors: an operand stored along K is transposed on its way. The next tiles are loaded into
// registers while these are multiplied. Loops over an invocation's loads and results and over a
// tile's K are unrolled when the kernel is composed, and tiles are arrays of arrays, so that
// unrolled indices are constants: a browser clamps an invocation's lane alone. With WALKS each
// invocation keeps the places of its loads, which take the same step along K each time.
//
// With LOW_RANK the sums of the first part of K have an adapter's terms too, in more steps.
//
// Grid: x over column tiles and splits, y over row tiles.
// Workgroup memory: 4 · BK · (BM + BN) bytes, and 32 · BK · TM / 4 or TN / 4 for
// a transposed operand.
#import lib/step
#import lib/range
#import lib/flat
#import lib/linear/operands
#import lib/linear/rows
#import lib/linear/b
#import lib/linear/tiles
#if LOW_RANK
#import lib/linear/low_rank
#endif

const CHECK_N: bool = N % BN != 0u;
const TILES_N: u32 = (N + BN - 1u) / BN;
const LANES_M: u32 = BM / TM;
const LANES_N: u32 = BN / TN;
// Invocations lie in patches of 4×8: a subgroup of 32 reads 4 vectors of one tile and 8 of the other.
// Neighbours share a vector of B and those two apart one of A, so that hardware that reads for a
// quarter of a subgroup at a time finds each vector twice in a half.
const PATCH_M: u32 = min(LANES_M, 4u);
const PATCH_N: u32 = min(LANES_N, 8u);
const PITCH_A: u32 = LANES_M + PAD_A;
const PITCH_B: u32 = LANES_N + PAD_B;
const TILE_STEPS: u32 = 4u * VECTORS_K;

// By vector of an invocation, step of K and lane. Steps of K lie by component, and then by vector of K.
var<workgroup> tile_a: array<array<array<vec4<f32>, PITCH_A>, TILE_STEPS>, LEFT_VECTORS>;
var<workgroup> tile_b: array<array<array<vec4<f32>, PITCH_B>, TILE_STEPS>, RIGHT_VECTORS>;

fn run(lane: u32, workgroup: vec3<u32>, workgroups: vec3<u32>) {
  let rows = range_rows(step.tokens, range);
  let m_end = size_m(rows);
  let k_all = size_k(rows);
  let m0 = workgroup.y * BM;
  let n0 = workgroup.x % TILES_N * BN;
  let split = workgroup.x / TILES_N;
  let k_part = (k_all + SPLITS * BK - 1u) / (SPLITS * BK) * BK;
  let k_begin = split * k_part;
  let k_end = min(k_begin + k_part, k_all);
  let column = column_of_a(range);
  let block = lane / (PATCH_M * PATCH_N);
  // In these very words: with others that mean the same, NVIDIA's compiler took a third of the speed.
  let lane_m = block / (LANES_N / PATCH_N) * PATCH_M + lane % (PATCH_M * PATCH_N) / (2u * PATCH_N) * 2u + lane % 2u;
  let lane_n = block % (LANES_N / PATCH_N) * PATCH_N + lane / 2u % PATCH_N;

  var next_a = array<vec4<f32>, LOADS_A>();
  var next_b = array<FetchedB, LOADS_B>();
  if k_begin < k_end {
    #unroll for (var i = 0u; i < LOADS_A; i++) {
      next_a[i] = load_a(lane + i * WORKGROUP, m0, k_begin, m_end, k_end, column);
    }
    #unroll for (var i = 0u; i < LOADS_B; i++) {
      next_b[i] = load_b(lane + i * WORKGROUP, n0, k_begin, k_end);
    }
  }
  var at_a = place_a(lane, m0, k_begin, column);
  var at_b = place_b(lane, n0, k_begin);
  var sums = array<array<vec4<f32>, RIGHT_VECTORS>, TM>();
  for (var k0 = k_begin; k0 < k_end; k0 += BK) {
    #unroll for (var i = 0u; i < LOADS_A; i++) {
      put_a(lane + i * WORKGROUP, next_a[i]);
    }
    #unroll for (var i = 0u; i < LOADS_B; i++) {
      put_b(lane + i * WORKGROUP, next_b[i]);
    }
    workgroupBarrier();
    at_a += step_a();
    at_b += step_b();
    if WALKS && k0 + 2u * BK <= k_end {
      #unroll for (var i = 0u; i < LOADS_A; i++) {
        next_a[i] = walk_a(at_a, i * WORKGROUP);
      }
      #unroll for (var i = 0u; i < LOADS_B; i++) {
        next_b[i] = walk_b(at_b, i * WORKGROUP);
      }
    } else if k0 + BK < k_end {
      #unroll for (var i = 0u; i < LOADS_A; i++) {
        next_a[i] = load_a(lane + i * WORKGROUP, m0, k0 + BK, m_end, k_end, column);
      }
      #unroll for (var i = 0u; i < LOADS_B; i++) {
        next_b[i] = load_b(lane + i * WORKGROUP, n0, k0 + BK, k_end);
      }
    }
    #unroll for (var v = 0u; v < VECTORS_K; v++) {
      #unroll for (var q = 0u; q < COMPONENTS; q++) {
        var right = array<vec4<f32>, RIGHT_VECTORS>();
        #unroll for (var j = 0u; j < RIGHT_VECTORS; j++) {
          right[j] = tile_b[j][q * VECTORS_K + v][lane_n];
        }
        #unroll for (var i = 0u; i < LEFT_VECTORS; i++) {
          let left = tile_a[i][q * VECTORS_K + v][lane_m];
          #unroll for (var j = 0u; j < RIGHT_VECTORS; j++) {
            sums[i * 4u][j] = fma(vec4(left.x), right[j], sums[i * 4u][j]);
            sums[i * 4u + 1u][j] = fma(vec4(left.y), right[j], sums[i * 4u + 1u][j]);
            sums[i * 4u + 2u][j] = fma(vec4(left.z), right[j], sums[i * 4u + 2u][j]);
            sums[i * 4u + 3u][j] = fma(vec4(left.w), right[j], sums[i * 4u + 3u][j]);
          }
        }
      }
    }
    workgroupBarrier();
  }
#if LOW_RANK
  // A loop of their own: the one above is as fast as without them.
  for (var k0 = select(SHORT, 0u, split == 0u); k0 < SHORT; k0 += BK) {
    #unroll for (var i = 0u; i < LOADS_A; i++) {
      put_a(lane + i * WORKGROUP, load_short(lane + i * WORKGROUP, m0, k0, m_end));
    }
    #unroll for (var i = 0u; i < LOADS_B; i++) {
      put_b(lane + i * WORKGROUP, load_low(lane + i * WORKGROUP, n0, k0));
    }
    workgroupBarrier();
    add_terms(lane_m, lane_n, &sums);
    workgroupBarrier();
  }
#endif

  #unroll for (var i = 0u; i < TM; i++) {
    let m = m0 + (i / 4u * LANES_M + lane_m) * 4u + i % 4u;
    #unroll for (var j = 0u; j < RIGHT_VECTORS; j++) {
      let n = n0 + (j * LANES_N + lane_n) * 4u;
      if m < m_end && (!CHECK_N || n < N) {
        store_c(split * PART_ROWS + m, n, column_of_c(range), sums[i][j]);
      }
    }
  }
}
