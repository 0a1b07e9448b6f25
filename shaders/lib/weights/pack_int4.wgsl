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
