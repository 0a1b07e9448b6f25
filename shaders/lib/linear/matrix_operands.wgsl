// Operand `a` and the results of products of matrices, with the bindings of 03_matmul_matrix.wgsl.
#if ROWS_OF_FOURS
// Every row begins at a multiple of 4; what it holds may end with padding.
#import lib/step
#import lib/range

@group(0) @binding(3) var<uniform> step: Step;
@group(0) @binding(4) var<uniform> range: Range;

#if A_F16
// Operand `a` of products of matrices in f16, two elements to a word: every row begins at a multiple of 4.
@group(0) @binding(0) var<storage, read> a: array<vec2<u32>>;

alias FetchedA = vec2<u32>;

// Elements inner … inner + 3 of row outer of `a`; `inner` is a multiple of 4.
fn fetch_a(outer: u32, inner: u32, column: u32) -> FetchedA {
  return a[outer * (A_STRIDE / 4u) + (column + inner) / 4u];
}

fn elements_a(fetched: FetchedA) -> vec4<f32> {
  return vec4(unpack2x16float(fetched.x), unpack2x16float(fetched.y));
}
#else
@group(0) @binding(0) var<storage, read> a: array<vec4<f32>>;

alias FetchedA = vec4<f32>;

// Elements inner … inner + 3 of row outer of `a`; `inner` is a multiple of 4.
fn fetch_a(outer: u32, inner: u32, column: u32) -> FetchedA {
  return a[outer * (A_STRIDE / 4u) + (column + inner) / 4u];
}

fn elements_a(fetched: FetchedA) -> vec4<f32> {
  return fetched;
}
#endif

#if F16
// Results in f16, four at a time, which overwrite.
#import lib/quad
@group(0) @binding(2) var<storage, read_write> c: array<Quad>;

// Columns col … col + 3 of row `row` of `c`.
fn store_c(row: u32, col: u32, column: u32, value: vec4<f32>) {
  c[(row * C_STRIDE + column + col) / 4u] = pack_quad(value);
}

// Sums are in f32: no matrix of them is stored as it is.
fn start(at: u32) -> Sums {
  return Sums();
}

fn store_sums(at: u32, sums: Sums) {}
#else
// Results one element at a time, so that whole matrices can be stored.
#import lib/linear/previous
@group(0) @binding(2) var<storage, read_write> c: array<f32>;

// Columns col … col + 3 of row `row` of `c`.
fn store_c(row: u32, col: u32, column: u32, value: vec4<f32>) {
  let i = row * C_STRIDE + column + col;
  c[i] = value.x + previous(i);
  c[i + 1u] = value.y + previous(i + 1u);
  c[i + 2u] = value.z + previous(i + 2u);
  c[i + 3u] = value.w + previous(i + 3u);
}
#endif
#else
#import lib/linear/operands
alias FetchedA = vec4<f32>;

fn elements_a(fetched: FetchedA) -> vec4<f32> {
  return fetched;
}
#endif
