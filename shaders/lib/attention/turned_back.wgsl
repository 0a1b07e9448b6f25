// Pairs turned by the negative angle, as 04_rope.wgsl backward; with their halves swapped, forward. Of four pairs
// (column, column + HEAD_DIM / 2) the first and the second elements. TABLE is the binding of the (cos, sin) of each position, two to a vector.
@group(0) @binding(TABLE) var<storage, read> table: array<vec4<f32>>;

fn turned_back(row: u32, column: u32, left: vec4<f32>, right: vec4<f32>) -> array<vec4<f32>, 2> {
  let at = ((step.position + row - documents[row]) * (HEAD_DIM / 2u) + column) / 2u;
  let first = table[at];
  let second = table[at + 1u];
  let cosines = vec4(first.xz, second.xz);
  let sines = vec4(first.yw, second.yw);
  return array(left * cosines + right * sines, right * cosines - left * sines);
}
