// adafactor_norms_forward: the squares of a tensor's update and of its weights, in parts.
//
// Grid: a fixed number of workgroups, each striding over the COUNT elements.
#import lib/step
#import lib/range
#import lib/reduce
#import lib/optimizer/second
#binding weights: array<f32>        // read        f32 [shard]
#binding gradients: array<f32>      // read        f32 [shard]
#binding moment1: array<f32>        // read        f32 [shard]
// squares: vec2<f32> [parts] overwritten, one a workgroup: x of the update, y of the weights
#binding squares: array<vec2<f32>>  // read_write
#binding optimizer: array<f32>      // read        f32 [4]   of step_decision; a zero in slot 3 leaves everything as it is
#binding step: Step                 // uniform
#binding range: Range               // uniform     row0: first weight, col0: first gradient
#binding place: Range               // uniform     row0: first mean in moment1, col0: in moment2, rows: first part

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
