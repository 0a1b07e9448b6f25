// What becomes of the sums of a product with one row.
#if HEADS_OF_ROW
#import lib/step
#import lib/cache/key_row
#import lib/matvec/pair_bias
// Results of matvec as the query, key and value heads of a text's newest row: of query and key heads
// rotated (04_rope.wgsl), keys and values behind the rows that the cache holds. PRODUCTS = 2: the
// numbers of a pair, half a head apart, one after the other in the order of heads; N pairs.
//
//   2 c      write       f32 [HEADS · HEAD_DIM]            the query heads
//   4 step   uniform
//   5 angles read        f32 [HEAD_DIM]                    (cos, sin) by pair, at the row's position
//   6 cache  write       f32 [rows, 2 · KV_HEADS · HEAD_DIM]  the row of step.position overwritten:
//                                                          lib/cache/key_row.wgsl
#operand step: Step
#operand angles: array<f32>
#operand cache: array<f32>

fn matrix_row(p: u32, n: u32) -> u32 {
  return n / HALF * HEAD_DIM + n % HALF + p * HALF;
}

// Of pair n.
var<private> rotation: vec2<f32>;
var<private> added: vec2<f32>;

fn prepare(n: u32) {
  let pair = 2u * (n % HALF);
  rotation = vec2(#angles[pair], #angles[pair + 1u]);
  added = pair_bias(matrix_row(0u, n));
}

fn store(sums: ptr<function, array<f32, SUMS>>, n: u32) {
  var pair = vec2((*sums)[0], (*sums)[1]) * scale(sums) + added;
  let head = n / HALF;
  if head < HEADS + KV_HEADS {
    pair = vec2(pair.x * rotation.x - pair.y * rotation.y, pair.y * rotation.x + pair.x * rotation.y);
  }
  let i = matrix_row(0u, n);
  if head < HEADS {
    #c[i] = pair.x;
    #c[i + HALF] = pair.y;
  } else {
    let at = key_row(step.position) * (2u * KV_HEADS * HEAD_DIM) + i - HEADS * HEAD_DIM;
    #cache[at] = pair.x;
    #cache[at + HALF] = pair.y;
  }
}
#else
// Results of matvec in the order of the matrix's rows: c, f32 [FIRST + N], overwritten from FIRST on.
// Product p of result n is with row p · N + n.
fn matrix_row(p: u32, n: u32) -> u32 {
  return p * N + n;
}

fn store(sums: ptr<function, array<f32, SUMS>>, n: u32) {
  #c[FIRST + n] = finished(sums);
}

#if GATED
#import lib/activation
// The products of a gate's row and of the row above it, N rows on, as activate(gate) · up.
// PRODUCTS = 2.
fn prepare(n: u32) {}

fn finished(sums: ptr<function, array<f32, SUMS>>) -> f32 {
  return activate((*sums)[0] * scale(sums)) * ((*sums)[1] * scale(sums));
}
#elif ADDED_IN_PLACE
// The result of a matrix-vector product added to what its place holds, such as the residual stream. PRODUCTS = 1.
// Invocations that store nothing read a place too, which its owner may have written meanwhile: they use no value of it.
var<private> added: f32;

fn prepare(n: u32) {
  added = #c[FIRST + n];
}

fn finished(sums: ptr<function, array<f32, SUMS>>) -> f32 {
  return (*sums)[0] * scale(sums) + added;
}
#elif BIASED_RESIDUAL
// The result of a matrix-vector product with a bias, added to the residual stream. PRODUCTS = 1.
#operand residual: array<f32>
#operand bias: array<f32>

var<private> added: vec2<f32>;

fn prepare(n: u32) {
  added = vec2(#residual[FIRST + n], #bias[FIRST + n]);
}

fn finished(sums: ptr<function, array<f32, SUMS>>) -> f32 {
  return (*sums)[0] * scale(sums) + added.x + added.y;
}
#elif RESIDUAL
// The result of a matrix-vector product added to a residual or a bias. PRODUCTS = 1.
#operand residual: array<f32>

var<private> added: f32;

fn prepare(n: u32) {
  added = #residual[FIRST + n];
}

fn finished(sums: ptr<function, array<f32, SUMS>>) -> f32 {
  return (*sums)[0] * scale(sums) + added;
}
#else
// The result of a matrix-vector product. PRODUCTS = 1.
fn prepare(n: u32) {}

fn finished(sums: ptr<function, array<f32, SUMS>>) -> f32 {
  return (*sums)[0] * scale(sums);
}
#endif
#endif
