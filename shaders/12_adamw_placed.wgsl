// adamw_placed_forward: 12_adamw.wgsl for a tensor beside others whose moments are codes: its moments lie
// elsewhere than its gradients.
//
// Grid: one invocation per element.
#import lib/step
#import lib/range
#import lib/flat

#binding weights: array<f32>    // read_write  f32 [shard]
#binding gradients: array<f32>  // read        f32 [shard]
#binding moment1: array<f32>    // read_write  f32 [shard]
#binding moment2: array<f32>    // read_write  f32 [shard]
#binding optimizer: array<f32>  // read        f32 [4]      of step_decision; a zero in slot 3 leaves everything as it is
#binding step: Step             // uniform
#binding range: Range           // uniform     row0: first weight, col0: first gradient, cols: elements that are decayed
#binding place: Range           // uniform     row0: first element of moment1, col0: of moment2

fn run(lane: u32, workgroup: vec3<u32>, workgroups: vec3<u32>) {
  let i = flat_id(lane, workgroup, workgroups);
  if i >= COUNT || optimizer[3] == 0.0 {
    return;
  }
  let gradient = gradients[range.col0 + i] * optimizer[2];
  let old1 = moment1[place.row0 + i];
  let old2 = moment2[place.col0 + i];
  let beta1 = step.numbers[BETA1];
  let beta2 = step.numbers[BETA2];
  let m = beta1.x * old1 + beta1.y * gradient;
  let v = beta2.x * old2 + beta2.y * gradient * gradient;
  moment1[place.row0 + i] = select(m, old1, step.still != 0u);
  moment2[place.col0 + i] = select(v, old2, step.still != 0u);
  let decay = select(0.0, step.learning_rate * step.weight_decay, i < range.cols);
  let weight = weights[range.row0 + i];
  weights[range.row0 + i] = weight - decay * weight
    - step.learning_rate * (m / optimizer[0]) / (sqrt(v / optimizer[1]) + step.numbers[EPSILON].x);
}
