//   6 d_query   write  as query, strides of its own; overwritten
//   7 geometry  uniform
@group(0) @binding(6) var<storage, read_write> d_query: array<Quad>;
@group(0) @binding(7) var<uniform> geometry: Geometry;

fn store_d_query(item: u32, row: u32, head: u32, v: u32, x: vec4<f32>) {
  d_query[row_at(geometry.d_query, item, head, row) + v] = pack_quad(x);
}
