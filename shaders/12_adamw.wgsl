// adamw_forward: one AdamW update of a run of weights with decoupled weight decay
// (Loshchilov and Hutter, arXiv:1711.05101), clipping fused.
//
//   0 weights    read_write  f32 [run]
//   1 gradients  read        f32 [run]
//   2 moment1    read_write  f32 [run]
//   3 moment2    read_write  f32 [run]
//   4 optimizer  read        f32 [4]    of step_decision; a zero in slot 3 leaves everything as it is
//   5 step       uniform
//   6 range      uniform                elements from range.cols on (norms) are not decayed
//
// Grid: one invocation per vector: four elements where the run is a multiple of them, or one.
#import lib/step
#import lib/range
#import lib/flat
#import lib/vector

@group(0) @binding(0) var<storage, read_write> weights: array<Vector>;
@group(0) @binding(1) var<storage, read> gradients: array<Vector>;
@group(0) @binding(2) var<storage, read_write> moment1: array<Vector>;
@group(0) @binding(3) var<storage, read_write> moment2: array<Vector>;
@group(0) @binding(4) var<storage, read> optimizer: array<f32>;
@group(0) @binding(5) var<uniform> step: Step;
@group(0) @binding(6) var<uniform> range: Range;

fn run(lane: u32, workgroup: vec3<u32>, workgroups: vec3<u32>) {
  let i = flat_id(lane, workgroup, workgroups);
  if i >= arrayLength(&weights) || optimizer[3] == 0.0 {
    return;
  }
  // In front of the stores: no load may pass them.
  let weight = weights[i];
  let gradient = gradients[i] * optimizer[2];
  let m = step.beta1 * moment1[i] + step.one_minus_beta1 * gradient;
  let v = step.beta2 * moment2[i] + step.one_minus_beta2 * gradient * gradient;
  moment1[i] = m;
  moment2[i] = v;
  let decay = select(Vector(), Vector(step.learning_rate * step.weight_decay), places(i) < Places(range.cols));
  let denominator = sqrt(v / optimizer[1]) + step.epsilon;
  weights[i] = weight - decay * weight - step.learning_rate * (m / optimizer[0]) / denominator;
}
