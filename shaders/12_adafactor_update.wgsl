// adafactor_update_forward: a step of a run of a tensor, in proportion to the size of its weights, with an update
// whose root mean square is clipped, and decoupled weight decay (Shazeer and Stern, arXiv:1804.04235, as
// torch.optim.Adafactor).
//
// Grid: a fixed number of workgroups, each striding over the COUNT elements of a tensor of TENSOR; each adds the parts up itself.
#import lib/step
#import lib/range
#import lib/reduce
#import lib/optimizer/second
#binding weights: array<f32>        // read_write  f32 [shard]
#binding gradients: array<f32>      // read        f32 [shard]
#binding moment1: array<f32>        // read        f32 [shard]
#binding squares: array<vec2<f32>>  // read        vec2<f32> [PARTS]  of adafactor_norms_forward
// optimizer: f32 [4] of step_decision, 0: updates made; a zero in slot 3 leaves everything as it is
#binding optimizer: array<f32>      // read
#binding step: Step                 // uniform
#binding range: Range               // uniform     row0: first weight, col0: first gradient, cols: 0 for no decay
#binding place: Range               // uniform     row0: first mean in moment1, col0: in moment2

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
