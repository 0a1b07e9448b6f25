// grad_norm_forward: first stage of the global gradient norm of a shard, one partial sum of squares
// per workgroup, over elements a fixed distance apart.
//
// Grid: a fixed number of workgroups, each striding over the whole shard, so that the order of
// additions never depends on anything but the shard's length.
#import lib/step
#import lib/reduce

#binding gradients: array<vec4<f32>>  // read     f32 [shard]        a multiple of 4
#binding squares: array<f32>          // write    f32 [workgroups]   overwritten
#binding step: Step                   // uniform

fn run(lane: u32, workgroup: vec3<u32>, workgroups: vec3<u32>) {
  var total = 0.0;
  let stride = workgroups.x * WORKGROUP;
  for (var i = workgroup.x * WORKGROUP + lane; i < arrayLength(&gradients); i += stride) {
    let value = gradients[i] * step.gradient_scale;
    total += dot(value, value);
  }
  let sum = reduce_sum(lane, total);
  if lane == 0u {
    squares[workgroup.x] = sum;
  }
}
