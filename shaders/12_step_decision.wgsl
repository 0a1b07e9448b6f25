// step_decision_forward: second stage of the global norm, and what the optimizer does with this
// step: the clipping factor, the bias corrections, and whether the update happens at all.
//
//   0 squares    read        f32 [COUNT]
//   1 metrics    read_write  f32 [8]  4: global norm, 5: 1 if the update is skipped (written)
//   2 optimizer  read_write  f32 [4]  0: 1 − beta1^n, 1: 1 − beta2^n over the n updates made so far
//                                     (carried); 2: factor on gradients, 0 to skip (written)
//   3 step       uniform
//
// A loss or norm that is not finite skips the update and leaves the bias corrections as they were.
// 1 − betaⁿ is carried as such (c ← c·beta + (1 − beta)): 1 − pow(beta, n) would cancel.
// Grid: one workgroup.
#import lib/step
#import lib/finite
#import lib/reduce

@group(0) @binding(0) var<storage, read> squares: array<f32>;
@group(0) @binding(1) var<storage, read_write> metrics: array<f32>;
@group(0) @binding(2) var<storage, read_write> optimizer: array<f32>;
@group(0) @binding(3) var<uniform> step: Step;

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
    if good {
      optimizer[0] = optimizer[0] * step.beta1 + step.one_minus_beta1;
      optimizer[1] = optimizer[1] * step.beta2 + step.one_minus_beta2;
    }
    let clip = min(1.0, step.max_grad_norm / (norm + 1e-6));
    optimizer[2] = select(0.0, clip * step.gradient_scale, good);
    optimizer[3] = select(0.0, 1.0, good);
  }
}
