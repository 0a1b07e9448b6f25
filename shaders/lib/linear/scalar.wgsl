// Operands of the linear kernels read and written one element at a time, for row lengths that are
// no multiple of 4. The bindings are those of 03_matmul_tiled.wgsl; `b` has modules of its own.
@group(0) @binding(0) var<storage, read> a: array<f32>;
@group(0) @binding(2) var<storage, read_write> c: array<f32>;
@group(0) @binding(3) var<uniform> step: Step;
@group(0) @binding(4) var<uniform> range: Range;

// Elements inner … inner + 3 of row outer of `a`, zero past the row's end.
fn fetch_a(outer: u32, inner: u32, column: u32) -> vec4<f32> {
  let i = outer * A_STRIDE + column + inner;
  var value = vec4(a[i], 0.0, 0.0, 0.0);
  if inner + 1u < A_INNER {
    value.y = a[i + 1u];
  }
  if inner + 2u < A_INNER {
    value.z = a[i + 2u];
  }
  if inner + 3u < A_INNER {
    value.w = a[i + 3u];
  }
  return value;
}

// Columns col … col + 3 of row `row` of `c`, those past N left out.
fn store_c(row: u32, col: u32, column: u32, value: vec4<f32>) {
  let i = row * C_STRIDE + column + col;
  for (var lane = 0u; lane < min(4u, N - col); lane++) {
    c[i + lane] = value[lane] + previous(i + lane);
  }
}
