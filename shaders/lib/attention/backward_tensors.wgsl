// The gradients of attention on tensors of any strides (lib/attention/geometry.wgsl):
//
//   0 … 2 as lib/attention/inputs_tensors.wgsl
//   3 d_output    read  as query
//   4 statistics  read  vec2<f32> [batch, HEADS, query rows]  logsumexp, delta
//   5 mask        read  u32: intervals, then the dense part
//   6 … the gradients: lib/attention/backward_tensors_*.wgsl
@group(0) @binding(3) var<storage, read> d_output: array<Quad>;
@group(0) @binding(4) var<storage, read> statistics: array<vec2<f32>>;
@group(0) @binding(5) var<storage, read> mask: array<u32>;

fn load_d_output(item: u32, row: u32, head: u32, v: u32) -> vec4<f32> {
  return unpack_quad(d_output[row_at(geometry.d_output, item, head, row) + v]);
}

fn load_lse(item: u32, row: u32, head: u32) -> f32 {
  return statistics[(item * HEADS + head) * geometry.query_rows + row].x;
}

fn load_delta(item: u32, row: u32, head: u32) -> f32 {
  return statistics[(item * HEADS + head) * geometry.query_rows + row].y;
}
