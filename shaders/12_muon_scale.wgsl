// muon_scale_forward: divides a matrix by its Frobenius norm, so that no singular value is above 1.
//
// Grid: a fixed number of workgroups, each striding over all elements; each adds the parts up itself.
#import lib/reduce

#binding squares: array<f32>    // read        f32 [PARTS]  of muon_forward
#binding direction: array<f32>  // read_write  f32 [rows, columns]

fn run(lane: u32, workgroup: vec3<u32>, workgroups: vec3<u32>) {
  var total = 0.0;
  for (var i = lane; i < PARTS; i += WORKGROUP) {
    total += squares[i];
  }
  let factor = 1.0 / max(sqrt(reduce_sum(lane, total)), 1e-7);
  let stride = workgroups.x * WORKGROUP;
  for (var i = workgroup.x * WORKGROUP + lane; i < COUNT; i += stride) {
    direction[i] *= factor;
  }
}
