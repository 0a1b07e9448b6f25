// What attention_decode reads, as three tensors whose strides are in the geometry. Heads are counted
// over the batch.
#operand query: array<Quad>
#operand keys: array<Quad>
#operand values: array<Quad>

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
