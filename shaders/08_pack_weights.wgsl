// pack_weights_forward: a matrix of f32 into a packed one, as lib/weights/ read it.
//
//   0 matrix  read   f32 [GROUPS · 32]           rows one after the other, each of whole groups
//   1 packed  write  words [GROUPS · WORDS], then the groups' scales as f32
//
// A group with a number that is not finite gets NaN as its scale.
// Grid: one invocation per group.
@group(0) @binding(0) var<storage, read> matrix: array<vec4<f32>>;
@group(0) @binding(1) var<storage, read_write> packed: array<u32>;

fn larger(a: f32, b: f32) -> f32 {
  return select(a, b, abs(b) > abs(a));
}

fn run(lane: u32, workgroup: vec3<u32>, workgroups: vec3<u32>) {
  let group = flat_id(lane, workgroup, workgroups);
  if group >= GROUPS {
    return;
  }
  let first = group * 8u;
  var extreme = 0.0;
  var finite = true;
  for (var v = 0u; v < 8u; v++) {
    let x = matrix[first + v];
    extreme = larger(larger(extreme, x.x), larger(x.y, larger(x.z, x.w)));
    finite = finite && is_finite(x.x) && is_finite(x.y) && is_finite(x.z) && is_finite(x.w);
  }
  // Below this the reciprocal would overflow: such a group is zero.
  let vanishes = abs(extreme) < 1e-30;
  let scale = scale_for(extreme);
  let inverse = select(1.0 / scale, 0.0, vanishes);
  for (var w = 0u; w < WORDS; w++) {
    packed[group * WORDS + w] = select(0u, word_of(first, w, inverse), finite);
  }
  let kept = select(bitcast<u32>(scale), 0u, vanishes);
  packed[GROUPS * WORDS + group] = select(NOT_A_NUMBER, kept, finite);
}
