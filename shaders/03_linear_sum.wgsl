// The second stage of a product that was split along K: adds up the parts, in their order.
//
//   0 parts     read        f32 [SPLITS, PART_ROWS, N]
//   1 c         read_write  f32 or f16 [M, N], C_STRIDE elements per row; by WRITE_MODE, or residual, bias or both + sum
//   2 step      uniform
//   3 range     uniform     token rows; first column of the slice of `c` in use
//   4 residual  read        f32, as c; or a bias, f32 [C_STRIDE] (only where there is one)
//   5 bias      read        f32 [C_STRIDE] (only behind a residual)
//
// M is the token dimension, or FIXED_ROWS if that is not 0. N is a multiple of 4. N
// includes a row's padding.
// Grid: an invocation for each four results, columns fastest.
#import lib/step
#import lib/range
#import lib/flat
#import lib/linear/previous
#import lib/stored

@group(0) @binding(0) var<storage, read> parts: array<vec4<f32>>;
@group(0) @binding(1) var<storage, read_write> c: array<Stored>;
@group(0) @binding(2) var<uniform> step: Step;
@group(0) @binding(3) var<uniform> range: Range;

fn run(lane: u32, workgroup: vec3<u32>, workgroups: vec3<u32>) {
  let rows = select(range_rows(step.tokens, range), FIXED_ROWS, FIXED_ROWS > 0u);
  let id = flat_id(lane, workgroup, workgroups);
  let row = id / (N / 4u);
  let vector = id % (N / 4u);
  if row < rows {
    var total = parts[id];
    #unroll for (var split = 1u; split < SPLITS; split++) {
      total += parts[split * PART_ROWS * (N / 4u) + id];
    }
    let i = (row * C_STRIDE + C_COLUMNS * range.col0) / 4u + vector;
    c[i] = stored(total + previous(i));
  }
}
