// Sums of a product that are heads of queries, keys and values: the first TURNED columns are rotated on their way to
// `c` as by 04_rope.wgsl, whole heads. Elements of a pair are APART, half a head, from each other.
@group(0) @binding(5) var<storage, read> table: array<vec4<f32>>;  // [positions, APART] of (cos, sin)
@group(0) @binding(6) var<storage, read> documents: array<u32>;    // u32 [tokens]: start of each row's document

// Columns col … col + 3 in the first half of a head, and those of its second half that they turn with.
fn store_pair(row: u32, col: u32, first: vec4<f32>, second: vec4<f32>) {
  let i = (row * C_STRIDE + col) / 4u;
  if col >= TURNED {
    c[i] = first;
    c[i + APART / 4u] = second;
    return;
  }
  let position = step.position + row - documents[row];
  let at = (position * APART + col % APART) / 2u;
  let low = table[at];
  let high = table[at + 1u];
  let cosine = vec4(low.xz, high.xz);
  let sine = vec4(low.yw, high.yw);
  c[i] = first * cosine - second * sine;
  c[i + APART / 4u] = second * cosine + first * sine;
}
