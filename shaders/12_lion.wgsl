// lion_forward: one Lion update of a run of weights with decoupled weight decay (Chen et al., "Symbolic
// Discovery of Optimization Algorithms", arXiv:2302.06675), clipping fused.
//
// Grid: one invocation per vector: four elements where the run is a multiple of them, or one.
#import lib/step
#import lib/range
#import lib/flat
#import lib/vector

#binding weights: array<Vector>    // read_write  f32 [run]
#binding gradients: array<Vector>  // read        f32 [run]
#binding optimizer: array<f32>     // read        f32 [4]    of step_decision; a zero in slot 3 leaves everything as it is
#binding step: Step                // uniform
#binding range: Range              // uniform     elements from range.cols on (norms) are not decayed
#binding moment1: array<Vector>    // read_write  f32 [run]

fn run(lane: u32, workgroup: vec3<u32>, workgroups: vec3<u32>) {
  let i = flat_id(lane, workgroup, workgroups);
  if i >= arrayLength(&weights) || optimizer[3] == 0.0 {
    return;
  }
  // In front of the store: no load may pass it.
  let weight = weights[i];
  let gradient = gradients[i] * optimizer[2];
  let m = moment1[i];
  let beta1 = step.numbers[BETA1];
  let beta2 = step.numbers[BETA2];
  moment1[i] = select(beta2.x * m + beta2.y * gradient, m, step.still != 0u);
  let decay = select(Vector(), Vector(step.learning_rate * step.weight_decay), places(i) < Places(range.cols));
  let direction = sign(beta1.x * m + beta1.y * gradient);
  weights[i] = weight - decay * weight - step.learning_rate * direction;
}
