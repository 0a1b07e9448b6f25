// What attention_decode reads for several rows: the query heads at the beginning of each fused row, keys and
// values in the part of the cache (lib/cache/) that is of the row's text. Heads are counted over the rows.
#operand query: array<vec4<f32>>

fn query_vector(head: u32, v: u32) -> vec4<f32> {
  return #query[head / HEADS * ROW_VECTORS + head % HEADS * VECTORS + v];
}

fn text_row(row: u32, kv_head: u32) -> u32 {
  return kv_head / KV_HEADS * step.reserved.x + row;
}

// Keys and values come without their scales.
fn key_vector(row: u32, kv_head: u32, v: u32) -> vec4<f32> {
  return cache_vector(text_row(row, kv_head), kv_head % KV_HEADS * VECTORS + v);
}

fn value_vector(row: u32, kv_head: u32, v: u32) -> vec4<f32> {
  return cache_vector(text_row(row, kv_head), (KV_HEADS + kv_head % KV_HEADS) * VECTORS + v);
}

fn key_scale(row: u32, kv_head: u32) -> f32 {
  return cache_scale(text_row(row, kv_head), kv_head % KV_HEADS);
}

fn value_scale(row: u32, kv_head: u32) -> f32 {
  return cache_scale(text_row(row, kv_head), KV_HEADS + kv_head % KV_HEADS);
}
