// adafactor_rows_forward: the mean of each row's squared gradients, averaged over updates (Shazeer and Stern,
// "Adafactor: Adaptive Learning Rates with Sublinear Memory Cost", arXiv:1804.04235, as torch.optim.Adafactor). A
// vector is rows of one element. Clipping is fused.
//
// Grid: one workgroup per row.
#import lib/step
#import lib/range
#import lib/flat
#import lib/reduce
#binding gradients: array<f32>  // read        f32 [shard]
#binding moment1: array<f32>    // read_write  f32 [shard]
// optimizer: f32 [4] of step_decision, 0: updates made; a zero in slot 3 leaves everything as it is
#binding optimizer: array<f32>  // read
#binding step: Step             // uniform
#binding range: Range           // uniform     col0: first gradient
#binding place: Range           // uniform     row0: first mean in moment1

fn run(lane: u32, workgroup: vec3<u32>, workgroups: vec3<u32>) {
  let row = flat_workgroup(workgroup, workgroups);
  if row >= ROWS || optimizer[3] == 0.0 {
    return;
  }
  var total = 0.0;
  for (var i = lane; i < COLUMNS; i += WORKGROUP) {
    let gradient = gradients[range.col0 + row * COLUMNS + i] * optimizer[2];
    total += gradient * gradient;
  }
  let mean = reduce_sum(lane, total) / f32(COLUMNS);
  if lane == 0u && step.still == 0u {
    let old = moment1[place.row0 + row];
    let share = pow(optimizer[0], step.numbers[BETA2_DECAY].x);
    moment1[place.row0 + row] = old + share * (mean - old);
  }
}
