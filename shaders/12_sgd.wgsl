// sgd_forward: one update by stochastic gradient descent of a run of weights, as torch.optim.SGD with
// dampening 0 and without Nesterov's form (Sutskever et al., ICML 2013), clipping fused. As there, weight
// decay is coupled: it adds to the gradient, and so to the velocity.
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
#if VELOCITY
#binding moment1: array<Vector>  // read_write  f32 [run]  the velocity; not bound without momentum
#endif

fn run(lane: u32, workgroup: vec3<u32>, workgroups: vec3<u32>) {
  let i = flat_id(lane, workgroup, workgroups);
  if i >= arrayLength(&weights) || optimizer[3] == 0.0 {
    return;
  }
  let weight = weights[i];
  let decay = select(Vector(), Vector(step.weight_decay), places(i) < Places(range.cols));
  let slope = gradients[i] * optimizer[2] + decay * weight;
#if VELOCITY
  // What is left of the velocity before, and the gradient.
  let old = moment1[i];
  let velocity = step.numbers[MOMENTUM].x * old + slope;
  moment1[i] = select(velocity, old, step.still != 0u);
#else
  let velocity = slope;
#endif
  weights[i] = weight - step.learning_rate * velocity;
}
