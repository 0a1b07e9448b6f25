// Operands of matvec_rows read four elements at a time: K is a multiple of 4. In rows, so that an index is checked
// once for a row and once for all vectors of the same place.
@group(0) @binding(0) var<storage, read> a: array<array<vec4<f32>, VECTORS>>;
@group(0) @binding(1) var<storage, read> b: array<array<vec4<f32>, VECTORS>>;

fn fetch_a(row: u32, v: u32) -> vec4<f32> {
  return a[row][v];
}

fn fetch_b(row: u32, v: u32) -> vec4<f32> {
  return b[row][v];
}
