// matmul, matmul_t, matmul_at with no workgroup memory and no barrier, TM×TN results per invocation
// in registers: the form for adapters that run on a CPU, where a barrier costs more than it saves.
// Bindings and modes are those of 03_matmul_tiled.wgsl, and one more:
//
//   last  sizes  uniform  N; K, or M for matmul_at; A_STRIDE; C_STRIDE
//
// So products of all shapes share a text: such an adapter takes longer to compile it than to run it.
// `sizes` and `block` are written out by the host (src/kernels/unrolled.rs).
//
// Rows and columns past the end are computed from clamped addresses and not stored.
// Grid: one invocation for a block of TM×TN results, columns fastest.
#import lib/step
#import lib/range
#import lib/flat
#import lib/linear/operands
#import lib/linear/b

var<private> N: u32;
var<private> A_STRIDE: u32;
var<private> A_INNER: u32;
var<private> B_STRIDE: u32;
var<private> B_INNER: u32;
var<private> C_STRIDE: u32;

fn run(lane: u32, workgroup: vec3<u32>, workgroups: vec3<u32>) {
  N = sizes.x;
  A_INNER = sizes.y;
  A_STRIDE = sizes.z;
  B_INNER = select(N, A_INNER, DOTS);
  B_STRIDE = B_INNER;
  C_STRIDE = sizes.w;
  let rows = range_rows(step.tokens, range);
  let m_end = select(rows, A_INNER, OVER_TOKENS);
  let k_end = select(A_INNER, rows, OVER_TOKENS);
  let blocks_n = (N + TN - 1u) / TN;
  let id = flat_id(lane, workgroup, workgroups);
  let m0 = id / blocks_n * TM;
  let n0 = id % blocks_n * TN;
  if m0 < m_end {
    block(m0, n0, m_end, k_end, A_COLUMNS * range.col0, C_COLUMNS * range.col0);
  }
}
