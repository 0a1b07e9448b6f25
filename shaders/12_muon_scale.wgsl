// muon_scale_forward: divides a matrix by its Frobenius norm, so that no singular value is above 1.
//
//   0 squares    read        f32 [PARTS]  of muon_forward
//   1 direction  read_write  f32 [rows, columns]
//
// Grid: a fixed number of workgroups, each striding over all elements; each adds the parts up itself.
#import lib/reduce

@group(0) @binding(0) var<storage, read> squares: array<f32>;
@group(0) @binding(1) var<storage, read_write> direction: array<f32>;

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
