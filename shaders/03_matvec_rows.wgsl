// uses: flat, range, weights/f16 or weights/int8 or weights/int4 or none, matvec_rows/vec4 or matvec_rows/scalar or none, matvec_rows/plain or matvec_rows/packed, matvec_rows/store or matvec_rows/store_residual or matvec_rows/store_bias or matvec_rows/store_biased_residual, matvec_rows/meet_subgroup or matvec_rows/meet_shared or matvec_rows/meet_alone
// matvec_rows_forward: C = A·Bᵀ for a few rows of A, B stored [N, K]: the linear layer of several decoded
// tokens. Each number of B is read once for COLUMNS rows of A.
//
//   0 a      read   f32 [rows, K]
//   1 b      read   f32 [N, K]; or packed (lib/weights/)
//   2 c      write  f32 [rows, STRIDE]   columns range.col0 … overwritten
//   3 range  uniform                     the rows, and the first column
//
// and then, where the kernel has them: a residual, f32 as c; a bias, f32 [STRIDE].
//
// LANES invocations share PRODUCTS rows of B and COLUMNS rows of A, neighbours reading neighbouring
// vectors. Rows past an end repeat the last one, and are not stored.
// Grid: a unit of LANES invocations for each PRODUCTS rows of B, then the same for the next COLUMNS rows of A.
@group(0) @binding(2) var<storage, read_write> c: array<f32>;
@group(0) @binding(3) var<uniform> range: Range;

const SETS: u32 = (N + PRODUCTS - 1u) / PRODUCTS;

fn store(row: u32, n: u32, sum: f32) {
  if row < range.rows && n < N {
    let place = row * STRIDE + range.col0 + n;
    c[place] = sum + added(place, range.col0 + n);
  }
}

fn run(lane: u32, workgroup: vec3<u32>, workgroups: vec3<u32>) {
  let unit = flat_workgroup(workgroup, workgroups) * (WORKGROUP / LANES) + lane / LANES;
  let first = unit % SETS * PRODUCTS;
  let row0 = unit / SETS * COLUMNS;
  var sums = array<f32, SUMS>();
  for (var v = lane % LANES; v < VECTORS; v += LANES) {
    add_products(&sums, first, row0, v);
  }
  finish(lane, first, row0, &sums);
}
