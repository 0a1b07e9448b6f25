// What attention_decode reads, as a model keeps it: the query heads at the beginning of a fused row,
// keys and values in the key-value cache (lib/cache/).
#operand query: array<vec4<f32>>

fn query_vector(head: u32, v: u32) -> vec4<f32> {
  return #query[head * VECTORS + v];
}

// Keys and values come without their scales.
fn key_vector(row: u32, kv_head: u32, v: u32) -> vec4<f32> {
  return cache_vector(row, kv_head * VECTORS + v);
}

fn value_vector(row: u32, kv_head: u32, v: u32) -> vec4<f32> {
  return cache_vector(row, (KV_HEADS + kv_head) * VECTORS + v);
}

fn key_scale(row: u32, kv_head: u32) -> f32 {
  return cache_scale(row, kv_head);
}

fn value_scale(row: u32, kv_head: u32) -> f32 {
  return cache_scale(row, KV_HEADS + kv_head);
}
