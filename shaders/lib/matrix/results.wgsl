// Results of products of matrices, one element at a time, so that whole matrices can be stored. The bindings are
// those of 03_matmul_matrix.wgsl. Every row begins at a multiple of 4; what it holds may end with padding.
@group(0) @binding(2) var<storage, read_write> c: array<f32>;
@group(0) @binding(3) var<uniform> step: Step;
@group(0) @binding(4) var<uniform> range: Range;

// Columns col … col + 3 of row `row` of `c`.
fn store_c(row: u32, col: u32, column: u32, value: vec4<f32>) {
  let i = row * C_STRIDE + column + col;
  c[i] = value.x + previous(i);
  c[i + 1u] = value.y + previous(i + 1u);
  c[i + 2u] = value.z + previous(i + 2u);
  c[i + 3u] = value.w + previous(i + 3u);
}
