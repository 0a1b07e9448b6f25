// adafactor_columns_forward: sums of squared gradients of a matrix down stretches of its columns.
//
//   0 gradients  read        f32 [shard]
//   1 sums       read_write  f32 [stretches, COLUMNS]  overwritten
//   2 optimizer  read        f32 [4]   of step_decision; a zero in slot 3 leaves everything as it is
//   3 range      uniform   col0: first gradient
//   4 place      uniform   col0: first stretch
//
// Grid: one invocation per stretch of STRETCH rows and column.
#import lib/step
#import lib/range
#import lib/flat
@group(0) @binding(0) var<storage, read> gradients: array<f32>;
@group(0) @binding(1) var<storage, read_write> sums: array<f32>;
@group(0) @binding(2) var<storage, read> optimizer: array<f32>;
@group(0) @binding(3) var<uniform> range: Range;
@group(0) @binding(4) var<uniform> place: Range;

fn run(lane: u32, workgroup: vec3<u32>, workgroups: vec3<u32>) {
  let i = flat_id(lane, workgroup, workgroups);
  let first = i / COLUMNS * STRETCH;
  if first >= ROWS || optimizer[3] == 0.0 {
    return;
  }
  var total = 0.0;
  for (var row = first; row < min(first + STRETCH, ROWS); row++) {
    let gradient = gradients[range.col0 + row * COLUMNS + i % COLUMNS] * optimizer[2];
    total += gradient * gradient;
  }
  sums[place.col0 * COLUMNS + i] = total;
}
