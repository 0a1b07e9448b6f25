// muon_forward: Muon's momentum with Nesterov's look ahead (Jordan et al., "Muon: An optimizer for hidden layers
// in neural networks", 2024, as torch.optim.Muon): the direction that is orthogonalised next, and the squares of
// its elements in parts. Clipping is fused.
//
//   0 gradients  read        f32 [shard]
//   1 moment1    read_write  f32 [shard]
//   2 direction  read_write  f32 [rows, columns]  overwritten
//   3 squares    read_write  f32 [parts]          overwritten, one a workgroup
//   4 optimizer  read        f32 [4]   of step_decision; a zero in slot 3 leaves everything as it is
//   5 step       uniform
//   6 range      uniform   row0: first gradient, col0: first moment
//   7 place      uniform   row0: first element of direction, col0: first part of squares
//
// Grid: a fixed number of workgroups, each striding over the COUNT elements.
#import lib/step
#import lib/range
#import lib/reduce

@group(0) @binding(0) var<storage, read> gradients: array<f32>;
@group(0) @binding(1) var<storage, read_write> moment1: array<f32>;
@group(0) @binding(2) var<storage, read_write> direction: array<f32>;
@group(0) @binding(3) var<storage, read_write> squares: array<f32>;
@group(0) @binding(4) var<storage, read> optimizer: array<f32>;
@group(0) @binding(5) var<uniform> step: Step;
@group(0) @binding(6) var<uniform> range: Range;
@group(0) @binding(7) var<uniform> place: Range;

fn run(lane: u32, workgroup: vec3<u32>, workgroups: vec3<u32>) {
  if optimizer[3] == 0.0 {
    return;
  }
  // A profile's step keeps all of the moment.
  let share = select(1.0 - MOMENTUM, 0.0, step.one_minus_beta1 == 0.0);
  var total = 0.0;
  let stride = workgroups.x * WORKGROUP;
  for (var i = workgroup.x * WORKGROUP + lane; i < COUNT; i += stride) {
    let gradient = gradients[range.row0 + i] * optimizer[2];
    let old = moment1[range.col0 + i];
    let moment = old + share * (gradient - old);
    let ahead = moment + (1.0 - MOMENTUM) * (gradient - moment);
    moment1[range.col0 + i] = moment;
    direction[place.row0 + i] = ahead;
    total += ahead * ahead;
  }
  let sum = reduce_sum(lane, total);
  if lane == 0u {
    squares[place.col0 + workgroup.x] = sum;
  }
}
