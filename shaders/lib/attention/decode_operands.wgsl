// What decode attention reads and writes, for 05_attention_decode.wgsl, 05_attention_decode_row.wgsl and
// 05_attention_decode_merge.wgsl: a model's cache, with BATCHED the texts of several rows, or TENSORS. Heads are counted
// over the rows or batch items. With SPLIT a range leaves partial results; MERGED says that these are read.
#import lib/attention/decode_seen

fn item_count() -> u32 {
#if TENSORS
  return geometry.batch;
#elif BATCHED
  return step.tokens;
#else
  return 1u;
#endif
}

#if !MERGED
#import lib/attention/decode_score
#if TENSORS
// Three tensors whose strides are in the geometry.
#operand query: array<Quad>
#operand keys: array<Quad>
#operand values: array<Quad>
#import lib/quad
#import lib/cache/key_row

fn query_vector(head: u32, v: u32) -> vec4<f32> {
  return unpack_quad(#query[row_at(geometry.query, head / HEADS, head % HEADS, 0u) + v]);
}

fn key_vector(row: u32, kv_head: u32, v: u32) -> vec4<f32> {
  return unpack_quad(#keys[row_at(geometry.key, kv_head / KV_HEADS, kv_head % KV_HEADS, row) + v]);
}

fn value_vector(row: u32, kv_head: u32, v: u32) -> vec4<f32> {
  return unpack_quad(#values[row_at(geometry.value, kv_head / KV_HEADS, kv_head % KV_HEADS, row) + v]);
}

fn key_scale(row: u32, kv_head: u32) -> f32 {
  return 1.0;
}

fn value_scale(row: u32, kv_head: u32) -> f32 {
  return 1.0;
}
#else
// The query heads at the beginning of a fused row, keys and values in the cache, without their scales.
#operand query: array<vec4<f32>>
#import lib/cache/rows
#import lib/cache/key_row

fn query_vector(head: u32, v: u32) -> vec4<f32> {
#if BATCHED
  return #query[head / HEADS * ROW_VECTORS + head % HEADS * VECTORS + v];
#else
  return #query[head * VECTORS + v];
#endif
}

// The row of the cache, in the part that is of the row's text, and the head in it.
fn cache_place(row: u32, kv_head: u32) -> vec2<u32> {
#if BATCHED
  return vec2(kv_head / KV_HEADS * step.reserved.x + row, kv_head % KV_HEADS);
#else
  return vec2(row, kv_head);
#endif
}

fn key_vector(row: u32, kv_head: u32, v: u32) -> vec4<f32> {
  let place = cache_place(row, kv_head);
  return cache_vector(place.x, place.y * VECTORS + v);
}

fn value_vector(row: u32, kv_head: u32, v: u32) -> vec4<f32> {
  let place = cache_place(row, kv_head);
  return cache_vector(place.x, (KV_HEADS + place.y) * VECTORS + v);
}

fn key_scale(row: u32, kv_head: u32) -> f32 {
  let place = cache_place(row, kv_head);
  return cache_scale(place.x, place.y);
}

fn value_scale(row: u32, kv_head: u32) -> f32 {
  let place = cache_place(row, kv_head);
  return cache_scale(place.x, KV_HEADS + place.y);
}
#endif
#endif

#if SPLIT
#import lib/attention/decode_partial
#else
#if TENSORS
// The result as a tensor, and the natural logarithm of Σ exp(score) for each batch item and head. A query that sees no
// key gives zeros, and MASKED for the logarithm.
#operand output: array<Quad>
#operand lse: array<f32>
#import lib/quad
#import lib/math

fn store_output(head: u32, vector: u32, sum: vec4<f32>, largest: f32, total: f32) {
  let weights = max(total, 1e-30);
  let row = row_at(geometry.output, head / HEADS, head % HEADS, 0u);
  #output[row + vector] = pack_quad(sum / weights);
  if vector == 0u {
    #lse[head] = select(MASKED, largest * LN_2 + log(weights), total > 0.0);
  }
}
#else
// The result as a model's next layer reads it: a row of heads.
#operand output: array<vec4<f32>>

fn store_output(head: u32, vector: u32, sum: vec4<f32>, largest: f32, total: f32) {
  #output[head * VECTORS + vector] = sum / total;
}
#endif

// One range that holds every key seen: what it leaves is the result.
fn decode_keys(split: u32, seen: vec2<u32>) -> vec2<u32> {
  return seen;
}

fn store_result(head: u32, split: u32, vector: u32, sum: vec4<f32>, largest: f32, total: f32) {
  store_output(head, vector, sum, largest, total);
}
#endif
