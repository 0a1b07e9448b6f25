// adafactor_columns_forward: sums of squared gradients of a matrix down stretches of its columns.
//
// Grid: one invocation per stretch of STRETCH rows and column.
#import lib/step
#import lib/range
#import lib/flat
#binding gradients: array<f32>  // read        f32 [shard]
#binding sums: array<f32>       // read_write  f32 [stretches, COLUMNS]  overwritten
#binding optimizer: array<f32>  // read        f32 [4]   of step_decision; a zero in slot 3 leaves everything as it is
#binding range: Range           // uniform     col0: first gradient
#binding place: Range           // uniform     col0: first stretch

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
