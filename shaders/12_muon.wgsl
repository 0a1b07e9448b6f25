// muon_forward: Muon's momentum with Nesterov's look ahead (Jordan et al., "Muon: An optimizer for hidden layers
// in neural networks", 2024, as torch.optim.Muon): the direction that is orthogonalised next, and the squares of
// its elements in parts. Clipping is fused.
//
// Grid: a fixed number of workgroups, each striding over the COUNT elements.
#import lib/step
#import lib/range
#import lib/reduce

#binding gradients: array<f32>  // read        f32 [shard]
#binding moment1: array<f32>    // read_write  f32 [shard]
#binding direction: array<f32>  // read_write  f32 [rows, columns]  overwritten
#binding squares: array<f32>    // read_write  f32 [parts]          overwritten, one a workgroup
#binding optimizer: array<f32>  // read        f32 [4]   of step_decision; a zero in slot 3 leaves everything as it is
#binding step: Step             // uniform
#binding range: Range           // uniform     row0: first gradient, col0: first moment
#binding place: Range           // uniform     row0: first element of direction, col0: first part of squares

fn run(lane: u32, workgroup: vec3<u32>, workgroups: vec3<u32>) {
  if optimizer[3] == 0.0 {
    return;
  }
  let share = 1.0 - step.numbers[MOMENTUM].x;
  var total = 0.0;
  let stride = workgroups.x * WORKGROUP;
  for (var i = workgroup.x * WORKGROUP + lane; i < COUNT; i += stride) {
    let gradient = gradients[range.row0 + i] * optimizer[2];
    let old = moment1[range.col0 + i];
    let moment = old + share * (gradient - old);
    let ahead = moment + share * (gradient - moment);
    moment1[range.col0 + i] = select(moment, old, step.still != 0u);
    direction[place.row0 + i] = ahead;
    total += ahead * ahead;
  }
  let sum = reduce_sum(lane, total);
  if lane == 0u {
    squares[place.col0 + workgroup.x] = sum;
  }
}
