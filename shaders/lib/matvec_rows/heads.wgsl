// Results of matvec_rows as the query, key and value heads of rows that are of texts of their own: of query and key
// heads rotated (04_rope.wgsl), keys and values where lib/cache/append_several.wgsl puts them. EACH = 2: the
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
