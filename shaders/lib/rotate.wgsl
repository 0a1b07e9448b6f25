// Pairs turned by the negative angle of their row's position, as 04_rope.wgsl backward; with their halves swapped,
// forward. Of four pairs (column, column + HEAD_DIM / 2) the first and the second elements.
#if ROTATED
// table: vec2 [positions, HEAD_DIM / 2] (cos, sin), two to a vector; where rows are ROTATED
#binding table: array<vec4<f32>>  // read
#endif

fn rotated_back(row: u32, column: u32, left: vec4<f32>, right: vec4<f32>) -> array<vec4<f32>, 2> {
#if ROTATED
  let at = ((step.position + row - documents[row]) * (HEAD_DIM / 2u) + column) / 2u;
  let first = table[at];
  let second = table[at + 1u];
  let cosines = vec4(first.xz, second.xz);
  let sines = vec4(first.yw, second.yw);
  return array(left * cosines + right * sines, right * cosines - left * sines);
#else
  return array(left, right);
#endif
}
