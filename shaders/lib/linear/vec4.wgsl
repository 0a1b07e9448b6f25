// Operands of the linear kernels read and written four elements at a time: every row begins at a
// multiple of 4; what it holds may end with padding. The bindings are those of 03_matmul_tiled.wgsl;
// `b` and the store have modules of their own.
@group(0) @binding(0) var<storage, read> a: array<vec4<f32>>;
@group(0) @binding(2) var<storage, read_write> c: array<Result>;
@group(0) @binding(3) var<uniform> step: Step;
@group(0) @binding(4) var<uniform> range: Range;

// Elements inner … inner + 3 of row outer of `a`; `inner` is a multiple of 4.
fn fetch_a(outer: u32, inner: u32, column: u32) -> vec4<f32> {
  return a[outer * (A_STRIDE / 4u) + (column + inner) / 4u];
}
