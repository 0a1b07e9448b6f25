// attention_forward on tensors of any strides (lib/attention/geometry.wgsl):
//
//   0 … 2 as lib/attention/inputs_tensors.wgsl
//   3 mask      read   u32: intervals, then the dense part
//   4 output    write  as query, strides of its own; overwritten
//   5 lse       write  f32 [batch, HEADS, query rows], overwritten
//   6 geometry  uniform
@group(0) @binding(3) var<storage, read> mask: array<u32>;
@group(0) @binding(4) var<storage, read_write> output: array<Quad>;
@group(0) @binding(5) var<storage, read_write> lse: array<f32>;
@group(0) @binding(6) var<uniform> geometry: Geometry;

fn store_output(item: u32, row: u32, head: u32, v: u32, x: vec4<f32>) {
  output[row_at(geometry.output, item, head, row) + v] = pack_quad(x);
}

fn store_lse(item: u32, row: u32, head: u32, x: f32) {
  lse[(item * HEADS + head) * geometry.query_rows + row] = x;
}
