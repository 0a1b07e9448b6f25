// sgd_forward: one update by stochastic gradient descent of a run of weights, as torch.optim.SGD with
// dampening 0 and without Nesterov's form (Sutskever et al., ICML 2013), clipping fused. As there, weight
// decay is coupled: it adds to the gradient, and so to the velocity.
//
//   0 weights    read_write  f32 [run]
//   1 gradients  read        f32 [run]
//   2 optimizer  read        f32 [4]    of step_decision; a zero in slot 3 leaves everything as it is
//   3 step       uniform
//   4 range      uniform                elements from range.cols on (norms) are not decayed
//   5 moment1    read_write  f32 [run]  the velocity; not bound without momentum
//
// Grid: one invocation per vector: four elements where the run is a multiple of them, or one.
#import lib/step
#import lib/range
#import lib/flat
#import lib/vector

@group(0) @binding(0) var<storage, read_write> weights: array<Vector>;
@group(0) @binding(1) var<storage, read> gradients: array<Vector>;
@group(0) @binding(2) var<storage, read> optimizer: array<f32>;
@group(0) @binding(3) var<uniform> step: Step;
@group(0) @binding(4) var<uniform> range: Range;
#if MOMENTUM
@group(0) @binding(5) var<storage, read_write> moment1: array<Vector>;
#endif

fn run(lane: u32, workgroup: vec3<u32>, workgroups: vec3<u32>) {
  let i = flat_id(lane, workgroup, workgroups);
  if i >= arrayLength(&weights) || optimizer[3] == 0.0 {
    return;
  }
  let weight = weights[i];
  let decay = select(Vector(), Vector(step.weight_decay), places(i) < Places(range.cols));
  let slope = gradients[i] * optimizer[2] + decay * weight;
#if MOMENTUM
  // What is left of the velocity before, and the gradient.
  let velocity = step.beta1 * moment1[i] + slope;
  moment1[i] = velocity;
#else
  let velocity = slope;
#endif
  weights[i] = weight - step.learning_rate * velocity;
}
