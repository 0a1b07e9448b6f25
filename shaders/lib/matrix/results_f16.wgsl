// Results of products of matrices in f16, four at a time, which overwrite. Needs lib/element/quad_f16.wgsl. The
// bindings are those of 03_matmul_matrix.wgsl. Every row begins at a multiple of 4; what it holds may end with padding.
@group(0) @binding(2) var<storage, read_write> c: array<Quad>;
@group(0) @binding(3) var<uniform> step: Step;
@group(0) @binding(4) var<uniform> range: Range;

// Columns col … col + 3 of row `row` of `c`.
fn store_c(row: u32, col: u32, column: u32, value: vec4<f32>) {
  c[(row * C_STRIDE + column + col) / 4u] = pack_quad(value);
}

// Sums are in f32: no matrix of them is stored as it is.
fn start(at: u32) -> Sums {
  return Sums();
}

fn store_sums(at: u32, sums: Sums) {}
