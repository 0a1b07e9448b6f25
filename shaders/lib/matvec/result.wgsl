// What becomes of the products of a row with rows of the matrix: `store`, with what `before` has loaded for it. BATCHED: of
// several rows, each STRIDE elements behind the one before.
#if HEADS_OF_ROW
#import lib/step
#import lib/cache/key_row
#import lib/matvec/pair_bias
// Query, key and value heads of a text's newest row: query and key heads are rotated (04_rope.wgsl), keys and values go to
// the cache (04_cache_append.wgsl). Two products are the numbers of a pair, half a head apart, one after the other
// in the order of heads; N pairs.
//
//   c          write  f32 [rows, STRIDE]             the query heads at the beginning of each row
#operand step: Step         // uniform
#operand cache: array<f32>  // write    f32 [rows, 2 · KV_HEADS · HEAD_DIM]
#if BATCHED
#operand table: array<vec2<f32>>  // read  vec2 [positions, HEAD_DIM / 2]  (cos, sin)
#operand documents: array<u32>    // read  u32 [rows]                     the row less its position, which wraps

fn row_count() -> u32 {
  return step.tokens;
}
#else
// angles: f32 [HEAD_DIM] (cos, sin) by pair, at the row's position; or, if BATCHED:
#operand angles: array<f32>  // read
#endif

fn matrix_row(p: u32, n: u32) -> u32 {
  return n / HALF * HEAD_DIM + n % HALF + p * HALF;
}

// The rotation of pair n, and its bias.
fn before(row: u32, n: u32) -> vec4<f32> {
#if BATCHED
  let rotation = #table[(row - #documents[row]) * HALF + n % HALF];
#else
  let pair = 2u * (n % HALF);
  let rotation = vec2(#angles[pair], #angles[pair + 1u]);
#endif
  return vec4(rotation, pair_bias(matrix_row(0u, n)));
}

fn store(row: u32, n: u32, sums: vec2<f32>, loaded: vec4<f32>) {
  let i = matrix_row(0u, n);
  let head = n / HALF;
  var pair = sums + loaded.zw;
  if head < HEADS + KV_HEADS {
    pair = vec2(pair.x * loaded.x - pair.y * loaded.y, pair.y * loaded.x + pair.x * loaded.y);
  }
  if head < HEADS {
    #c[row * STRIDE + i] = pair.x;
    #c[row * STRIDE + i + HALF] = pair.y;
  } else {
#if BATCHED
    let key = row * step.reserved.x + key_row(row - #documents[row]);
#else
    let key = key_row(step.position);
#endif
    let at = key * (2u * KV_HEADS * HEAD_DIM) + i - HEADS * HEAD_DIM;
    #cache[at] = pair.x;
    #cache[at + HALF] = pair.y;
  }
}
#else
// Results in the order of the matrix's rows, from a column on: c, f32 [rows, STRIDE]. A gate's product and that of the row
// N above it give activate(gate) · up. Others are added to what is loaded before the products are known: what their place
// holds, such as the residual stream (ADDED_IN_PLACE), or a residual, as c, and a bias, f32 [STRIDE].
#if BATCHED
#import lib/range
#operand range: Range

fn row_count() -> u32 {
  return range.rows;
}
#endif
#if GATED
#import lib/activation
#endif
#if RESIDUAL
#operand residual: array<f32>
#endif
#if BIASED
#operand bias: array<f32>
#endif

// Product p of result n is with this row.
fn matrix_row(p: u32, n: u32) -> u32 {
  return p * N + n;
}

fn column_of(n: u32) -> u32 {
#if BATCHED
  return range.col0 + n;
#else
  return FIRST + n;
#endif
}

// Invocations that store nothing read a place too, which its owner may have written meanwhile: they use no value of it.
fn before(row: u32, n: u32) -> vec4<f32> {
  var loaded = vec4<f32>();
#if ADDED_IN_PLACE
  loaded.x = #c[column_of(n)];
#endif
#if RESIDUAL
  loaded.x = #residual[row * STRIDE + column_of(n)];
#endif
#if BIASED
  loaded.y = #bias[column_of(n)];
#endif
  return loaded;
}

fn store(row: u32, n: u32, sums: vec2<f32>, loaded: vec4<f32>) {
#if GATED
  let result = activate(sums.x) * sums.y;
#elif BIASED
  let result = sums.x + loaded.x + loaded.y;
#else
  let result = sums.x + loaded.x;
#endif
  #c[row * STRIDE + column_of(n)] = result;
}
#endif

// What the norm before a product multiplies by, of the sum of a row's squares.
fn norm_scale(squares: f32) -> f32 {
#if NORMED
  return inverseSqrt(squares / f32(K) + EPSILON);
#else
  return 1.0;
#endif
}
