// loss_sum_forward: sums the losses of a batch and counts its targets; adds both to those of the
// earlier micro-steps.
//
// Grid: one workgroup.
#import lib/step
#import lib/reduce

#binding losses: array<f32>   // read        f32 [tokens]
#binding targets: array<u32>  // read        u32 [tokens]
// metrics: f32 [8] 0: this batch's loss sum, 1: its targets (both overwritten); 2, 3: the same over the accumulation
#binding metrics: array<f32>  // read_write
#binding step: Step           // uniform

fn run(lane: u32, workgroup: vec3<u32>, workgroups: vec3<u32>) {
  var total = 0.0;
  var count = 0.0;
  for (var t = lane; t < step.tokens; t += WORKGROUP) {
    total += losses[t];
    count += select(1.0, 0.0, targets[t] == 0xffffffffu);
  }
  let sum = reduce_sum(lane, total);
  let counted = reduce_sum(lane, count);
  if lane == 0u {
    metrics[0] = sum;
    metrics[1] = counted;
    let first = step.accumulate == 0u;
    metrics[2] = select(metrics[2], 0.0, first) + sum;
    metrics[3] = select(metrics[3], 0.0, first) + counted;
  }
}
