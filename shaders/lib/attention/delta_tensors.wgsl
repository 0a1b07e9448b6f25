// attention_delta_backward on tensors of any strides (lib/attention/geometry.wgsl):
//
//   0 output      read   [batch, HEADS, query rows, HEAD_DIM]
//   1 d_output    read   as output, strides of its own
//   2 lse         read   f32 [batch, HEADS, query rows]
//   3 statistics  write  vec2<f32> [batch, HEADS, query rows]  overwritten: logsumexp, delta
//   4 geometry    uniform
@group(0) @binding(0) var<storage, read> output: array<Quad>;
@group(0) @binding(1) var<storage, read> d_output: array<Quad>;
@group(0) @binding(2) var<storage, read> lse: array<f32>;
@group(0) @binding(3) var<storage, read_write> statistics: array<vec2<f32>>;
@group(0) @binding(4) var<uniform> geometry: Geometry;

fn invocation_count() -> u32 {
  return geometry.batch * HEADS * geometry.query_rows;
}

fn product(id: u32, v: u32) -> f32 {
  let row = id % geometry.query_rows;
  let head = id / geometry.query_rows % HEADS;
  let item = id / geometry.query_rows / HEADS;
  let left = unpack_quad(output[row_at(geometry.output, item, head, row) + v]);
  return dot(left, unpack_quad(d_output[row_at(geometry.d_output, item, head, row) + v]));
}

fn store_delta(id: u32, x: f32) {
  statistics[id] = vec2(lse[id], x);
}
