// uses: step, range, flat, write_mode, linear/vec4 or linear/scalar, linear/residual_vec4 or linear/residual_scalar or linear/bias_vec4 or linear/bias_scalar or linear/biased_residual_vec4 or linear/biased_residual_scalar or linear/previous_vec4 or linear/previous_scalar, linear/c_f32 or none, linear/rows_outer or linear/rows_inner, linear/b_f32 or linear/b_f16 or linear/b_int8 or linear/b_int4 or linear/b_scalar, direct_block
// matmul, matmul_t, matmul_at with no workgroup memory and no barrier, TM×TN results per invocation
// in registers: the form for adapters that run on a CPU, where a barrier costs more than it saves.
// Bindings and modes are those of 03_matmul_tiled.wgsl; `block` is written out by the host
// (src/kernels/unrolled.rs).
//
// Rows and columns past the end are computed from clamped addresses and not stored.
// Grid: one invocation for a block of TM×TN results, columns fastest.
const BLOCKS_N: u32 = (N + TN - 1u) / TN;

fn run(lane: u32, workgroup: vec3<u32>, workgroups: vec3<u32>) {
  let rows = range_rows(step.tokens, range);
  let m_end = size_m(rows);
  let id = flat_id(lane, workgroup, workgroups);
  let m0 = id / BLOCKS_N * TM;
  let n0 = id % BLOCKS_N * TN;
  if m0 < m_end {
    block(m0, n0, m_end, size_k(rows), column_of_a(range), column_of_c(range));
  }
}
