// attention_forward on tensors of any strides (lib/attention_geometry.wgsl):
//
//   0 query     read   [batch, HEADS, query rows, HEAD_DIM]
//   1 keys      read   [batch, KV_HEADS, key rows, HEAD_DIM]
//   2 values    read   as keys
//   3 mask      read   u32: intervals, then the dense part
//   4 output    write  as query, strides of its own; overwritten
//   5 lse       write  f32 [batch, HEADS, query rows], overwritten
//   6 geometry  uniform
@group(0) @binding(0) var<storage, read> query: array<Quad>;
@group(0) @binding(1) var<storage, read> keys: array<Quad>;
@group(0) @binding(2) var<storage, read> values: array<Quad>;
@group(0) @binding(3) var<storage, read> mask: array<u32>;
@group(0) @binding(4) var<storage, read_write> output: array<Quad>;
@group(0) @binding(5) var<storage, read_write> lse: array<f32>;
@group(0) @binding(6) var<uniform> geometry: Geometry;

fn load_query(item: u32, row: u32, head: u32, v: u32) -> vec4<f32> {
  return unpack_quad(query[row_at(geometry.query, item, head, row) + v]);
}

fn load_key(item: u32, row: u32, kv_head: u32, v: u32) -> vec4<f32> {
  return unpack_quad(keys[row_at(geometry.key, item, kv_head, row) + v]);
}

fn load_value(item: u32, row: u32, kv_head: u32, v: u32) -> vec4<f32> {
  return unpack_quad(values[row_at(geometry.value, item, kv_head, row) + v]);
}

fn store_output(item: u32, row: u32, head: u32, v: u32, x: vec4<f32>) {
  output[row_at(geometry.output, item, head, row) + v] = pack_quad(x);
}

fn store_lse(item: u32, row: u32, head: u32, x: f32) {
  lse[(item * HEADS + head) * geometry.query_rows + row] = x;
}
