// average_forward: an exponential moving average of a run of weights, as torch.optim.swa_utils' get_ema_avg_fn; or
// begins it, or exchanges it with the weights.
//
// Grid: one invocation per element.
#import lib/step
#import lib/range
#import lib/flat

#binding weights: array<f32>    // read_write  f32 [run]
#binding averages: array<f32>   // read_write  f32 [run]
#binding optimizer: array<f32>  // read        f32 [4]   of step_decision; a zero in slot 3 leaves everything as it is
#binding step: Step             // uniform     position: 0 after an optimizer step, 1 to begin, 2 to exchange

fn run(lane: u32, workgroup: vec3<u32>, workgroups: vec3<u32>) {
  let i = flat_id(lane, workgroup, workgroups);
  if i >= arrayLength(&averages) {
    return;
  }
  let weight = weights[i];
  let average = averages[i];
  if step.position != 0u {
    averages[i] = weight;
    if step.position == 2u {
      weights[i] = average;
    }
    return;
  }
  if optimizer[3] != 0.0 && step.still == 0u {
    averages[i] = average + SHARE * (weight - average);
  }
}
