// pack_weights_forward: a matrix of f32 into one in f16, two elements to a word.
//
// What f16 cannot hold is bounded to ±65504. Four neighbours with a number that is not finite become NaN.
// Grid: one invocation per vector of four.
#import lib/flat
#import lib/finite

#binding matrix: array<vec4<f32>>  // read   f32 [4 · VECTORS]
#binding packed: array<vec2<u32>>  // write  words [2 · VECTORS]

fn run(lane: u32, workgroup: vec3<u32>, workgroups: vec3<u32>) {
  let i = flat_id(lane, workgroup, workgroups);
  if i >= VECTORS {
    return;
  }
  let x = matrix[i];
  let bounded = clamp(x, vec4(-65504.0), vec4(65504.0));
  let halves = vec2(pack2x16float(bounded.xy), pack2x16float(bounded.zw));
  let finite = is_finite(x.x) && is_finite(x.y) && is_finite(x.z) && is_finite(x.w);
  packed[i] = select(vec2(HALF_NOT_A_NUMBER), halves, finite);
}
