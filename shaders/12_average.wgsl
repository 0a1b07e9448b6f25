// average_forward: an exponential moving average of a run of weights, as torch.optim.swa_utils' get_ema_avg_fn; or
// begins it, or exchanges it with the weights.
//
//   0 weights    read_write  f32 [run]
//   1 averages   read_write  f32 [run]
//   2 optimizer  read        f32 [4]   of step_decision; a zero in slot 3 leaves everything as it is
//   3 step       uniform               position: 0 after an optimizer step, 1 to begin, 2 to exchange
//
// Grid: one invocation per element.
#import lib/step
#import lib/range
#import lib/flat

@group(0) @binding(0) var<storage, read_write> weights: array<f32>;
@group(0) @binding(1) var<storage, read_write> averages: array<f32>;
@group(0) @binding(2) var<storage, read> optimizer: array<f32>;
@group(0) @binding(3) var<uniform> step: Step;

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
  // A profile's step changes nothing.
  if optimizer[3] != 0.0 && step.one_minus_beta1 != 0.0 {
    averages[i] = average + SHARE * (weight - average);
  }
}
