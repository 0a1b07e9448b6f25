// adafactor_norms_forward: the squares of a tensor's update and of its weights, in parts.
//
//   0 weights    read        f32 [shard]
//   1 gradients  read        f32 [shard]
//   2 moment1    read        f32 [shard]
//   3 squares    read_write  vec2<f32> [parts]  overwritten, one a workgroup: x of the update, y of the weights
//   4 optimizer  read        f32 [4]   of step_decision; a zero in slot 3 leaves everything as it is
//   5 step       uniform
//   6 range      uniform   row0: first weight, col0: first gradient
//   7 place      uniform   row0: first mean in moment1, col0: in moment2, rows: first part
//   8 moment2    read        f32 [shard]  not bound for a vector
//
// Grid: a fixed number of workgroups, each striding over the COUNT elements.
#import lib/step
#import lib/range
#import lib/reduce
#import lib/optimizer/second
@group(0) @binding(0) var<storage, read> weights: array<f32>;
@group(0) @binding(1) var<storage, read> gradients: array<f32>;
@group(0) @binding(2) var<storage, read> moment1: array<f32>;
@group(0) @binding(3) var<storage, read_write> squares: array<vec2<f32>>;
@group(0) @binding(4) var<storage, read> optimizer: array<f32>;
@group(0) @binding(5) var<uniform> step: Step;
@group(0) @binding(6) var<uniform> range: Range;
@group(0) @binding(7) var<uniform> place: Range;

fn run(lane: u32, workgroup: vec3<u32>, workgroups: vec3<u32>) {
  if optimizer[3] == 0.0 {
    return;
  }
  let factor = second_factor(lane);
  let least = step.numbers[EPSILON].x * step.numbers[EPSILON].x;
  var update = 0.0;
  var weight = 0.0;
  let stride = workgroups.x * WORKGROUP;
  for (var i = workgroup.x * WORKGROUP + lane; i < COUNT; i += stride) {
    let gradient = gradients[range.col0 + i] * optimizer[2];
    update += gradient * gradient / max(second(i, factor), least);
    weight += weights[range.row0 + i] * weights[range.row0 + i];
  }
  let of_update = reduce_sum(lane, update);
  let of_weight = reduce_sum(lane, weight);
  if lane == 0u {
    squares[place.rows + workgroup.x] = vec2(of_update, of_weight);
  }
}
