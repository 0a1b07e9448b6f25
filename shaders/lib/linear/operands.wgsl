// Operands `a` and `c` of the linear kernels, with the bindings of 03_matmul_tiled.wgsl.
#import lib/step
#import lib/range
#import lib/stored
#if GATE_GRADIENT
#import lib/activation
#else
#import lib/linear/previous
#endif

@group(0) @binding(3) var<uniform> step: Step;
@group(0) @binding(4) var<uniform> range: Range;
#if BY_FOUR
// Four elements at a time: every row begins at a multiple of 4; what it holds may end with padding.
@group(0) @binding(0) var<storage, read> a: array<vec4<f32>>;
@group(0) @binding(2) var<storage, read_write> c: array<Stored>;

// Elements inner … inner + 3 of row outer of `a`; `inner` is a multiple of 4.
fn fetch_a(outer: u32, inner: u32, column: u32) -> vec4<f32> {
  return a[outer * (A_STRIDE / 4u) + (column + inner) / 4u];
}

#if GATE_GRADIENT
// Sums of a product that are the gradient of activate(gate) · up. From them come the gradients of gate and up, to `c`,
// f32 [M, 2 · N], gate | up. What the activation gave is computed once more, which is cheaper than to keep it.
@group(0) @binding(5) var<storage, read> gate_up: array<vec4<f32>>;        // f32 [M, 2 · N]
@group(0) @binding(6) var<storage, read_write> activated: array<vec4<f32>>; // f32 [M, N]

// Columns col … col + 3 of gate, and those of up that belong to them.
fn store_c(row: u32, col: u32, column: u32, slope: vec4<f32>) {
  let i = (row * 2u * N + col) / 4u;
  let gate = gate_up[i];
  let up = gate_up[i + N / 4u];
  let activation = activate_four(gate);
  let derivative = activate_derivative_four(gate);
  c[i] = slope * up * derivative;
  c[i + N / 4u] = slope * activation;
  activated[(row * N + col) / 4u] = activation * up;
}
#else
// Columns col … col + 3 of row `row` of `c`.
fn store_c(row: u32, col: u32, column: u32, value: vec4<f32>) {
  let i = (row * C_STRIDE + column + col) / 4u;
  c[i] = stored(value + previous(i));
}
#endif
#else
// One element at a time, for row lengths that are no multiple of 4.
@group(0) @binding(0) var<storage, read> a: array<f32>;
@group(0) @binding(2) var<storage, read_write> c: array<f32>;

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
#endif
