// adafactor_column_means_forward: the mean of each column's squared gradients, averaged over updates.
//
//   0 sums       read        f32 [STRETCHES, COLUMNS]  of adafactor_columns_forward
//   1 moment2    read_write  f32 [shard]
//   2 optimizer  read        f32 [4]   of step_decision, 0: updates made; a zero in slot 3 leaves everything as it is
//   3 step       uniform
//   4 place      uniform   col0: first mean in moment2
//
// Grid: one invocation per column.
#import lib/step
#import lib/range
#import lib/flat
@group(0) @binding(0) var<storage, read> sums: array<f32>;
@group(0) @binding(1) var<storage, read_write> moment2: array<f32>;
@group(0) @binding(2) var<storage, read> optimizer: array<f32>;
@group(0) @binding(3) var<uniform> step: Step;
@group(0) @binding(4) var<uniform> place: Range;

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
