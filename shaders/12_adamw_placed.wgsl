// adamw_placed_forward: 12_adamw.wgsl for a tensor beside others whose moments are codes: its moments lie
// elsewhere than its gradients.
//
//   0 weights    read_write  f32 [shard]
//   1 gradients  read        f32 [shard]
//   2 moment1    read_write  f32 [shard]
//   3 moment2    read_write  f32 [shard]
//   4 optimizer  read        f32 [4]      of step_decision; a zero in slot 3 leaves everything as it is
//   5 step       uniform
//   6 range      uniform   row0: first weight, col0: first gradient, cols: elements that are decayed
//   7 place      uniform   row0: first element of moment1, col0: of moment2
//
// Grid: one invocation per element.
#import lib/step
#import lib/range
#import lib/flat

@group(0) @binding(0) var<storage, read_write> weights: array<f32>;
@group(0) @binding(1) var<storage, read> gradients: array<f32>;
@group(0) @binding(2) var<storage, read_write> moment1: array<f32>;
@group(0) @binding(3) var<storage, read_write> moment2: array<f32>;
@group(0) @binding(4) var<storage, read> optimizer: array<f32>;
@group(0) @binding(5) var<uniform> step: Step;
@group(0) @binding(6) var<uniform> range: Range;
@group(0) @binding(7) var<uniform> place: Range;

fn run(lane: u32, workgroup: vec3<u32>, workgroups: vec3<u32>) {
  let i = flat_id(lane, workgroup, workgroups);
  if i >= COUNT || optimizer[3] == 0.0 {
    return;
  }
  let gradient = gradients[range.col0 + i] * optimizer[2];
  let m = step.beta1 * moment1[place.row0 + i] + step.one_minus_beta1 * gradient;
  let v = step.beta2 * moment2[place.col0 + i] + step.one_minus_beta2 * gradient * gradient;
  moment1[place.row0 + i] = m;
  moment2[place.col0 + i] = v;
  let decay = select(0.0, step.learning_rate * step.weight_decay, i < range.cols);
  let weight = weights[range.row0 + i];
  weights[range.row0 + i] = weight - decay * weight
    - step.learning_rate * (m / optimizer[0]) / (sqrt(v / optimizer[1]) + step.epsilon);
}
