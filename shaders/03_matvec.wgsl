// matvec_forward: c = b·a for one row, b stored [N, K]: the linear layer of a single decoded token.
//
//   0 a         read   f32 [K]
//   1 b         read   f32 [N, K]
//   2 c         write  f32 [range.col0 + N]   overwritten from range.col0 on: product, or residual + product
//   3 range     uniform
//   4 residual  read   f32, as c              (only in the residual form)
//
// LANES invocations share a row of `b`, neighbours reading neighbouring elements; their partial
// sums meet in workgroup memory. Grid: WORKGROUP / LANES rows a workgroup.
@group(0) @binding(2) var<storage, read_write> c: array<f32>;
@group(0) @binding(3) var<uniform> range: Range;

const ROWS_PER_GROUP: u32 = WORKGROUP / LANES;

var<workgroup> partial_sums: array<f32, WORKGROUP>;

fn run(lane: u32, workgroup: vec3<u32>, workgroups: vec3<u32>) {
  let part = lane % LANES;
  let n = flat_workgroup(workgroup, workgroups) * ROWS_PER_GROUP + lane / LANES;
  var total = 0.0;
  if n < N {
    for (var k = part * 4u; k < K; k += LANES * 4u) {
      total += product(n, k);
    }
  }
  partial_sums[lane] = total;
  workgroupBarrier();
  if part == 0u && n < N {
    for (var i = 1u; i < LANES; i++) {
      total += partial_sums[lane + i];
    }
    c[range.col0 + n] = total + previous(range.col0 + n);
  }
}
