// pack_weights_forward: a matrix of f32 into a packed one, as lib/weights.wgsl reads it.
//
// A group with a number that is not finite gets NaN as its scale.
// Grid: one invocation per group.
#import lib/flat
#import lib/finite

#binding matrix: array<vec4<f32>>  // read   f32 [GROUPS · 32]           rows one after the other, each of whole groups
#binding packed: array<u32>        // write  words [GROUPS · WORDS], then the groups' scales as f32

#if INT8
// Packs 32 neighbours in signed bytes: the largest magnitude is ±127 scales.
fn scale_for(extreme: f32) -> f32 {
  return abs(extreme) / 127.0;
}

// Word w of a group; a group begins at vector `first` of the matrix.
fn word_of(first: u32, w: u32, inverse: f32) -> u32 {
  let x = clamp(round(matrix[first + w] * inverse), vec4(-127.0), vec4(127.0));
  let bytes = bitcast<vec4<u32>>(vec4<i32>(x)) & vec4(0xffu);
  return bytes.x | (bytes.y << 8u) | (bytes.z << 16u) | (bytes.w << 24u);
}
#else
// Packs 32 neighbours in four bits: the one of the largest magnitude is −8 scales, and takes the sign
// of the scale with it.
fn scale_for(extreme: f32) -> f32 {
  return extreme / -8.0;
}

fn nibbles(x: vec4<f32>, inverse: f32) -> u32 {
  let n = vec4<u32>(clamp(round(x * inverse) + 8.0, vec4(0.0), vec4(15.0)));
  return n.x | (n.y << 4u) | (n.z << 8u) | (n.w << 12u);
}

// Word w of a group; a group begins at vector `first` of the matrix.
fn word_of(first: u32, w: u32, inverse: f32) -> u32 {
  let low = nibbles(matrix[first + 2u * w], inverse);
  return low | (nibbles(matrix[first + 2u * w + 1u], inverse) << 16u);
}
#endif

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
