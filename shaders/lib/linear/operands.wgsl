// Operands `a` and `c` of the linear kernels. ROWS_OF_FOURS: every row begins at a multiple of 4; what it holds may end with
// padding.
#import lib/step
#import lib/range
#import lib/stored
#if GATE_GRADIENT
#import lib/activation
#else
#import lib/linear/previous
#endif

#binding step: Step    // uniform
#binding range: Range  // uniform  token rows; first column of the slice of `a` or `c` in use

// a: f32 or f16 [M, K], or [K, M] for matmul_at; A_STRIDE elements per row. `fetch_a` has elements inner … inner + 3 of row
// outer, zero past the row's end.
#if A_F16
// In f16, two elements to a word: unpacked where they are used, since a conversion waits for its load.
#binding a: array<vec2<u32>>

alias FetchedA = vec2<u32>;

fn fetch_a(outer: u32, inner: u32, column: u32) -> FetchedA {
  return a[outer * (A_STRIDE / 4u) + (column + inner) / 4u];
}

fn elements_a(fetched: FetchedA) -> vec4<f32> {
  return vec4(unpack2x16float(fetched.x), unpack2x16float(fetched.y));
}
#else
alias FetchedA = vec4<f32>;

fn elements_a(fetched: FetchedA) -> vec4<f32> {
  return fetched;
}

#if ROWS_OF_FOURS
#binding a: array<vec4<f32>>

fn fetch_a(outer: u32, inner: u32, column: u32) -> FetchedA {
  return a[outer * (A_STRIDE / 4u) + (column + inner) / 4u];
}
#else
#binding a: array<f32>

fn fetch_a(outer: u32, inner: u32, column: u32) -> FetchedA {
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
#endif
#endif

#if GATE_GRADIENT
// Sums of a product that are the gradient of activate(gate) · up. From them come the gradients of gate and up, to `c`,
// f32 [M, 2 · N], gate | up. What the activation gave is computed once more, which is cheaper than to keep it.
#binding c: array<Stored>
#binding gate_up: array<vec4<f32>>    // f32 [M, 2 · N]
#binding activated: array<vec4<f32>>  // f32 [M, N]

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
#elif BY_FOUR
// c: f32 or f16 [M, N], C_STRIDE elements per row; by WRITE_MODE, or residual, bias or both + product
#binding c: array<Stored>

// Columns col … col + 3 of row `row` of `c`.
fn store_c(row: u32, col: u32, column: u32, value: vec4<f32>) {
  let i = (row * C_STRIDE + column + col) / 4u;
  c[i] = stored(value + previous(i));
}
#else
// The same one element at a time, for row lengths that are no multiple of 4, and so that whole matrices can be stored.
#binding c: array<f32>

// Columns col … col + 3 of row `row` of `c`, those past N left out.
fn store_c(row: u32, col: u32, column: u32, value: vec4<f32>) {
  let i = row * C_STRIDE + column + col;
#if ROWS_OF_FOURS
  c[i] = value.x + previous(i);
  c[i + 1u] = value.y + previous(i + 1u);
  c[i + 2u] = value.z + previous(i + 2u);
  c[i + 3u] = value.w + previous(i + 3u);
#else
  for (var lane = 0u; lane < min(4u, N - col); lane++) {
    c[i + lane] = value[lane] + previous(i + lane);
  }
#endif
}
#endif
