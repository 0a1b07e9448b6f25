// matvec_forward: c = b·x for one row, b stored [N, K]: the linear layer of a single decoded token.
//
//   0 a      read   f32 [K]
//   1 b      read   f32 [PRODUCTS · N, K]; or packed (lib/weights.wgsl)
//
// and then, in this order, where the kernel has them: the weight of a norm, f32 [K]; a residual,
// f32 as c; a bias, f32 as c; what lib/matvec/result.wgsl binds. What it imports says what x is (a, or its
// RMSNorm), which PRODUCTS rows of b an invocation multiplies, and what becomes of the sums.
//
// LANES invocations share a row of b, neighbours reading neighbouring vectors of four. A row has
// WHOLE · LANES vectors, of which UNROLLED · LANES at a time are on their way together, then
// LAST · LANES, then REST. What the result is put together from besides is loaded before the sums are known.
// Each binding costs a browser's host time, token by token: so places are constants, and the residual stream is added to
// where it lies.
// Grid: WORKGROUP / LANES rows per workgroup.
#import lib/flat
#import lib/matvec/products
#import lib/matvec/result
#import lib/matvec/meet

#operand c: array<f32>  // write  f32, as lib/matvec/result.wgsl says; read too where sums are added to it

const ROWS_PER_GROUP: u32 = WORKGROUP / LANES;

fn run(lane: u32, workgroup: vec3<u32>, workgroups: vec3<u32>) {
  let place = place_of(lane);
  let part = place % LANES;
  let n = flat_workgroup(workgroup, workgroups) * ROWS_PER_GROUP + place / LANES;
  // Rows past the end repeat the last one, and are not stored.
  let row = min(n, N - 1u);
  let loaded = before(0u, row);
  var sums = array<f32, SUMS>();
  for (var turn = 0u; turn < WHOLE; turn += UNROLLED) {
    #unroll for (var u = 0u; u < UNROLLED; u++) {
      add_products(&sums, row, (turn + u) * LANES + part);
    }
  }
  #unroll for (var u = 0u; u < LAST; u++) {
    add_products(&sums, row, (WHOLE + u) * LANES + part);
  }
  if part < REST {
    add_products(&sums, row, (WHOLE + LAST) * LANES + part);
  }
  meet(lane, &sums);
  if part == 0u && n < N {
    store(0u, n, norm_scale(sums[SUMS - 1u]) * vec2(sums[0], sums[PRODUCTS - 1u]), loaded);
  }
}
