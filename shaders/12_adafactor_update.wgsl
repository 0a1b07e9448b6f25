// adafactor_update_forward: a step of a run of a tensor, in proportion to the size of its weights, with an update
// whose root mean square is clipped, and decoupled weight decay (Shazeer and Stern, arXiv:1804.04235, as
// torch.optim.Adafactor).
//
//   0 weights    read_write  f32 [shard]
//   1 gradients  read        f32 [shard]
//   2 moment1    read        f32 [shard]
//   3 squares    read        vec2<f32> [PARTS]  of adafactor_norms_forward
//   4 optimizer  read        f32 [4]   of step_decision, 0: updates made; a zero in slot 3 leaves everything as it is
//   5 step       uniform
//   6 range      uniform   row0: first weight, col0: first gradient, cols: 0 for no decay
//   7 place      uniform   row0: first mean in moment1, col0: in moment2
//   8 moment2    read        f32 [shard]  not bound for a vector
//
// Grid: a fixed number of workgroups, each striding over the COUNT elements of a tensor of TENSOR; each adds the parts up itself.
#import lib/step
#import lib/range
#import lib/reduce
#import lib/optimizer/second
@group(0) @binding(0) var<storage, read_write> weights: array<f32>;
@group(0) @binding(1) var<storage, read> gradients: array<f32>;
@group(0) @binding(2) var<storage, read> moment1: array<f32>;
@group(0) @binding(3) var<storage, read> squares: array<vec2<f32>>;
@group(0) @binding(4) var<storage, read> optimizer: array<f32>;
@group(0) @binding(5) var<uniform> step: Step;
@group(0) @binding(6) var<uniform> range: Range;
@group(0) @binding(7) var<uniform> place: Range;

fn run(lane: u32, workgroup: vec3<u32>, workgroups: vec3<u32>) {
  if optimizer[3] == 0.0 {
    return;
  }
  let factor = second_factor(lane);
  var total = vec2(0.0);
  for (var i = lane; i < PARTS; i += WORKGROUP) {
    total += squares[i];
  }
  let update = sqrt(reduce_sum(lane, total.x) / TENSOR);
  let weight = sqrt(reduce_sum(lane, total.y) / TENSOR);
  let rate = min(step.learning_rate, inverseSqrt(optimizer[0])) * max(step.numbers[LEAST_SCALE].x, weight);
  let clipped = rate / max(1.0, update / step.numbers[CLIP_THRESHOLD].x);
  let decay = select(step.learning_rate * step.weight_decay, 0.0, range.cols == 0u);
  let least = step.numbers[EPSILON].x * step.numbers[EPSILON].x;
  let stride = workgroups.x * WORKGROUP;
  for (var i = workgroup.x * WORKGROUP + lane; i < COUNT; i += stride) {
    let gradient = gradients[range.col0 + i] * optimizer[2];
    let along = gradient * inverseSqrt(max(second(i, factor), least));
    let old = weights[range.row0 + i];
    weights[range.row0 + i] = old - decay * old - clipped * along;
  }
}
