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
