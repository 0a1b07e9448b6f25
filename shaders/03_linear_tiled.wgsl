// matmul, matmul_t, matmul_at: C = A·B, A·Bᵀ and Aᵀ·B by tiles in workgroup memory, TM×TN results
// an invocation in registers.
//
//   0 a         read        f32 [M, K], or [K, M] for matmul_at; A_STRIDE elements a row
//   1 b         read        f32 [K, N], or [N, K] for matmul_t; B_STRIDE elements a row
//   2 c         read_write  f32 [M, N], C_STRIDE elements a row; by WRITE_MODE, or residual + product
//   3 step      uniform
//   4 range     uniform     token rows; first column of the slice of `a` or `c` in use
//   5 residual  read        f32, as c (only in the residual form)
//
// Loops over an invocation's results (TM, LEFT_VECTORS, RIGHT_VECTORS) are unrolled when the kernel
// is composed. The token dimension (M, or K for matmul_at) is a run-time value, the others are constants.
// Grid: x over column tiles, y over row tiles. Workgroup memory: 4 · BK · (BM + BN) bytes.
const CHECK_N: bool = N % BN != 0u;
const LANES_N: u32 = BN / TN;
const LANES_M: u32 = BM / TM;

var<workgroup> tile_a: array<vec4<f32>, BK * BM / 4u>;
var<workgroup> tile_b: array<vec4<f32>, BK * BN / 4u>;

fn run(lane: u32, workgroup: vec3<u32>, workgroups: vec3<u32>) {
  let rows = range_rows(step.tokens, range);
  let m_end = size_m(rows);
  let k_end = size_k(rows);
  let m0 = workgroup.y * BM;
  let n0 = workgroup.x * BN;
  let column = column_of_a(range);
  let lane_n = lane % LANES_N;
  let lane_m = lane / LANES_N;

  var sums = array<array<vec4<f32>, RIGHT_VECTORS>, TM>();
  for (var k0 = 0u; k0 < k_end; k0 += BK) {
    stage_a(lane, m0, k0, m_end, k_end, column);
    stage_b(lane, n0, k0, k_end);
    workgroupBarrier();
    for (var k = 0u; k < BK; k++) {
      var right = array<vec4<f32>, RIGHT_VECTORS>();
      for (var j = 0u; j < RIGHT_VECTORS; j++) {
        right[j] = tile_b[k * (BN / 4u) + j * LANES_N + lane_n];
      }
      for (var i = 0u; i < LEFT_VECTORS; i++) {
        let left = tile_a[k * (BM / 4u) + i * LANES_M + lane_m];
        for (var j = 0u; j < RIGHT_VECTORS; j++) {
          sums[i * 4u][j] += left.x * right[j];
          sums[i * 4u + 1u][j] += left.y * right[j];
          sums[i * 4u + 2u][j] += left.z * right[j];
          sums[i * 4u + 3u][j] += left.w * right[j];
        }
      }
    }
    workgroupBarrier();
  }

  for (var i = 0u; i < TM; i++) {
    let m = m0 + (i / 4u * LANES_M + lane_m) * 4u + i % 4u;
    for (var j = 0u; j < RIGHT_VECTORS; j++) {
      let n = n0 + (j * LANES_N + lane_n) * 4u;
      if m < m_end && (!CHECK_N || n < N) {
        store_c(m, n, column_of_c(range), sums[i][j]);
      }
    }
  }
}
