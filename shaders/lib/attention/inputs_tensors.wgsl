// What both passes of attention read of tensors of any strides (lib/attention/geometry.wgsl):
//
//   0 query     read   [batch, HEADS, query rows, HEAD_DIM]
//   1 keys      read   [batch, KV_HEADS, key rows, HEAD_DIM]
//   2 values    read   as keys
@group(0) @binding(0) var<storage, read> query: array<Quad>;
@group(0) @binding(1) var<storage, read> keys: array<Quad>;
@group(0) @binding(2) var<storage, read> values: array<Quad>;

fn load_query(item: u32, row: u32, head: u32, v: u32) -> vec4<f32> {
  return unpack_quad(query[row_at(geometry.query, item, head, row) + v]);
}

fn load_key(item: u32, row: u32, kv_head: u32, v: u32) -> vec4<f32> {
  return unpack_quad(keys[row_at(geometry.key, item, kv_head, row) + v]);
}

fn load_value(item: u32, row: u32, kv_head: u32, v: u32) -> vec4<f32> {
  return unpack_quad(values[row_at(geometry.value, item, kv_head, row) + v]);
}
