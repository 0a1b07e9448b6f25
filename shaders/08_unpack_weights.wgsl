// unpack_weights_forward: a packed matrix in f32, for kernels that read f32.
//
// Grid: one invocation per unit of the packed matrix.
#import lib/flat
#import lib/weights

#binding matrix: array<vec4<f32>>  // write  f32 [UNITS · QUADS · 4]  overwritten

fn run(lane: u32, workgroup: vec3<u32>, workgroups: vec3<u32>) {
  let i = flat_id(lane, workgroup, workgroups);
  if i >= UNITS {
    return;
  }
  let words = fetch_packed(i);
  let scale = scale_of(i);
  #unroll for (var q = 0u; q < QUADS; q++) {
    matrix[i * QUADS + q] = scale * quad_of(words, q);
  }
}
