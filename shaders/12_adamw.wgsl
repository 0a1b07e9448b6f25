// adamw_forward: one AdamW update of a run of weights with decoupled weight decay
// (Loshchilov and Hutter, arXiv:1711.05101), clipping fused.
//
// Grid: one invocation per vector: four elements where the run is a multiple of them, or one.
#import lib/step
#import lib/range
#import lib/flat
#import lib/vector

#binding weights: array<Vector>    // read_write  f32 [run]
#binding gradients: array<Vector>  // read        f32 [run]
#binding moment1: array<Vector>    // read_write  f32 [run]
#binding moment2: array<Vector>    // read_write  f32 [run]
#binding optimizer: array<f32>     // read        f32 [4]    of step_decision; a zero in slot 3 leaves everything as it is
#binding step: Step                // uniform
#binding range: Range              // uniform     elements from range.cols on (norms) are not decayed

fn run(lane: u32, workgroup: vec3<u32>, workgroups: vec3<u32>) {
  let i = flat_id(lane, workgroup, workgroups);
  if i >= arrayLength(&weights) || optimizer[3] == 0.0 {
    return;
  }
  // In front of the stores: no load may pass them.
  let weight = weights[i];
  let gradient = gradients[i] * optimizer[2];
  let old1 = moment1[i];
  let old2 = moment2[i];
  let beta1 = step.numbers[BETA1];
  let beta2 = step.numbers[BETA2];
  let m = beta1.x * old1 + beta1.y * gradient;
  let v = beta2.x * old2 + beta2.y * gradient * gradient;
  moment1[i] = select(m, old1, step.still != 0u);
  moment2[i] = select(v, old2, step.still != 0u);
  let decay = select(Vector(), Vector(step.learning_rate * step.weight_decay), places(i) < Places(range.cols));
  let denominator = sqrt(v / optimizer[1]) + step.numbers[EPSILON].x;
  weights[i] = weight - decay * weight - step.learning_rate * (m / optimizer[0]) / denominator;
}
