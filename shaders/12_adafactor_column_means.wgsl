// adafactor_column_means_forward: the mean of each column's squared gradients, averaged over updates.
//
// Grid: one invocation per column.
#import lib/step
#import lib/range
#import lib/flat
#binding sums: array<f32>       // read        f32 [STRETCHES, COLUMNS]  of adafactor_columns_forward
#binding moment2: array<f32>    // read_write  f32 [shard]
// optimizer: f32 [4] of step_decision, 0: updates made; a zero in slot 3 leaves everything as it is
#binding optimizer: array<f32>  // read
#binding step: Step             // uniform
#binding place: Range           // uniform     col0: first mean in moment2

fn run(lane: u32, workgroup: vec3<u32>, workgroups: vec3<u32>) {
  let i = flat_id(lane, workgroup, workgroups);
  if i >= COLUMNS || optimizer[3] == 0.0 || step.still != 0u {
    return;
  }
  var total = 0.0;
  for (var stretch = 0u; stretch < STRETCHES; stretch++) {
    total += sums[stretch * COLUMNS + i];
  }
  let old = moment2[place.col0 + i];
  let share = pow(optimizer[0], step.numbers[BETA2_DECAY].x);
  moment2[place.col0 + i] = old + share * (total / f32(ROWS) - old);
}
