//   6 d_key     write  as keys, strides of its own; overwritten
//   7 d_value   write  as keys, strides of its own; overwritten
//   8 geometry  uniform
@group(0) @binding(6) var<storage, read_write> d_key: array<Quad>;
@group(0) @binding(7) var<storage, read_write> d_value: array<Quad>;
@group(0) @binding(8) var<uniform> geometry: Geometry;

fn store_d_key(item: u32, row: u32, kv_head: u32, v: u32, x: vec4<f32>) {
  d_key[row_at(geometry.d_key, item, kv_head, row) + v] = pack_quad(x);
}

fn store_d_value(item: u32, row: u32, kv_head: u32, v: u32, x: vec4<f32>) {
  d_value[row_at(geometry.d_value, item, kv_head, row) + v] = pack_quad(x);
}
