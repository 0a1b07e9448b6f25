// What becomes of the sums of a product with a few rows.
#if HEADS_OF_ROW
#import lib/step
#import lib/cache/key_row
#import lib/matvec/pair_bias
// Results of matvec_rows as the query, key and value heads of rows that are of texts of their own: of query and key
// heads rotated (04_rope.wgsl), keys and values where 04_cache_append.wgsl puts them. EACH = 2: the
// numbers of a pair, half a head apart; N pairs.
//
//   2 c          write  f32 [rows, STRIDE]            the query heads at the beginning of each row
//   3 step       uniform
//   5 table      read   vec2 [positions, HEAD_DIM / 2]  (cos, sin)
//   6 cache      write  f32 [rows, 2 · KV_HEADS · HEAD_DIM]
//   7 documents  read   u32 [rows]                    the row less its position, which wraps
@group(0) @binding(3) var<uniform> step: Step;
@group(0) @binding(5) var<storage, read> table: array<vec2<f32>>;
@group(0) @binding(6) var<storage, read_write> cache: array<f32>;
@group(0) @binding(7) var<storage, read> documents: array<u32>;

fn row_count() -> u32 {
  return step.tokens;
}

fn matrix_row(n: u32, half: u32) -> u32 {
  return n / HALF * HEAD_DIM + n % HALF + half * HALF;
}

fn store(row: u32, n: u32, sums: vec2<f32>) {
  let position = row - documents[row];
  let i = matrix_row(n, 0u);
  var pair = sums + pair_bias(i);
  let head = n / HALF;
  if head < HEADS + KV_HEADS {
    let rotation = table[position * HALF + n % HALF];
    pair = vec2(pair.x * rotation.x - pair.y * rotation.y, pair.y * rotation.x + pair.x * rotation.y);
  }
  if head < HEADS {
    c[row * STRIDE + i] = pair.x;
    c[row * STRIDE + i + HALF] = pair.y;
  } else {
    let at = (row * step.reserved.x + key_row(position)) * (2u * KV_HEADS * HEAD_DIM) + i - HEADS * HEAD_DIM;
    cache[at] = pair.x;
    cache[at + HALF] = pair.y;
  }
}
#elif GATED
#import lib/range
#import lib/activation
// Results of matvec_rows of a gate's row and of the row above it, N rows on, as activate(gate) · up: c, f32
// [rows, STRIDE], columns range.col0 … overwritten. EACH = 2.
@group(0) @binding(3) var<uniform> range: Range;

fn row_count() -> u32 {
  return range.rows;
}

fn matrix_row(n: u32, half: u32) -> u32 {
  return half * N + n;
}

fn store(row: u32, n: u32, pair: vec2<f32>) {
  c[row * STRIDE + range.col0 + n] = activate(pair.x) * pair.y;
}
#else
#import lib/range
// Results of matvec_rows in the order of the matrix's rows: c, f32 [rows, STRIDE], columns range.col0 … overwritten.
// EACH = 1.
@group(0) @binding(3) var<uniform> range: Range;
#if RESIDUAL
@group(0) @binding(RESIDUAL_BINDING) var<storage, read> residual: array<f32>;
#endif
#if BIASED
@group(0) @binding(BIAS_BINDING) var<storage, read> bias: array<f32>;
#endif

fn row_count() -> u32 {
  return range.rows;
}

fn matrix_row(n: u32, half: u32) -> u32 {
  return n;
}

fn store(row: u32, n: u32, pair: vec2<f32>) {
  let column = range.col0 + n;
  let place = row * STRIDE + column;
#if RESIDUAL
  var added = residual[place];
#if BIASED
  added += bias[column];
#endif
#elif BIASED
  let added = bias[column];
#else
  let added = 0.0;
#endif
  c[place] = pair.x + added;
}
#endif
