// lion_forward: one Lion update of a run of weights with decoupled weight decay (Chen et al., "Symbolic
// Discovery of Optimization Algorithms", arXiv:2302.06675), clipping fused.
//
//   0 weights    read_write  f32 [run]
//   1 gradients  read        f32 [run]
//   2 optimizer  read        f32 [4]    of step_decision; a zero in slot 3 leaves everything as it is
//   3 step       uniform
//   4 range      uniform                elements from range.cols on (norms) are not decayed
//   5 moment1    read_write  f32 [run]
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
@group(0) @binding(5) var<storage, read_write> moment1: array<Vector>;

fn run(lane: u32, workgroup: vec3<u32>, workgroups: vec3<u32>) {
  let i = flat_id(lane, workgroup, workgroups);
  if i >= arrayLength(&weights) || optimizer[3] == 0.0 {
    return;
  }
  // In front of the store: no load may pass it.
  let weight = weights[i];
  let gradient = gradients[i] * optimizer[2];
  let m = moment1[i];
  moment1[i] = step.beta2 * m + step.one_minus_beta2 * gradient;
  let decay = select(Vector(), Vector(step.learning_rate * step.weight_decay), places(i) < Places(range.cols));
  let direction = sign(step.beta1 * m + step.one_minus_beta1 * gradient);
  weights[i] = weight - decay * weight - step.learning_rate * direction;
}
