// step_decision_forward: second stage of the global norm, and what the optimizer does with this
// step: the clipping factor, what is carried over updates, and whether the update happens at all.
//
// A loss or norm that is not finite skips the update and leaves what is carried as it was.
// 1 − betaⁿ is carried as such (c ← c·beta + (1 − beta)): 1 − pow(beta, n) would cancel.
// Grid: one workgroup.
#import lib/step
#import lib/finite
#import lib/reduce

#binding squares: array<f32>    // read        f32 [COUNT]
#binding metrics: array<f32>    // read_write  f32 [8]  4: global norm, 5: 1 if the update is skipped (written)
// optimizer: f32 [4] 0, 1: carried over the updates made so far, as 1 − betaⁿ over n of them; 2: factor on gradients, 3: 1,
// or 0 to skip (written)
#binding optimizer: array<f32>  // read_write
#binding step: Step             // uniform

fn run(lane: u32, workgroup: vec3<u32>, workgroups: vec3<u32>) {
  var total = 0.0;
  for (var i = lane; i < COUNT; i += WORKGROUP) {
    total += squares[i];
  }
  let sum = reduce_sum(lane, total);
  if lane == 0u {
    let norm = sqrt(sum);
    let good = is_finite(sum) && is_finite(metrics[2]);
    metrics[4] = norm;
    metrics[5] = select(1.0, 0.0, good);
    if good && step.still == 0u {
      optimizer[0] = optimizer[0] * step.carried.x + step.carried.z;
      optimizer[1] = optimizer[1] * step.carried.y + step.carried.w;
    }
    let clip = min(1.0, step.max_grad_norm / (norm + 1e-6));
    optimizer[2] = select(0.0, clip * step.gradient_scale, good);
    optimizer[3] = select(0.0, 1.0, good);
  }
}
