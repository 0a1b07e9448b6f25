// An owner is a key-value head, whose gradients lie in the fused row, or a query head, whose part
// attention_group_sum adds up.
fn store_d_key(item: u32, row: u32, owner: u32, v: u32, x: vec4<f32>) {
  gradient[(row * D_STRIDE + D_KEY_OFFSET + owner * HEAD_DIM) / 4u + v] = x;
}

fn store_d_value(item: u32, row: u32, owner: u32, v: u32, x: vec4<f32>) {
  gradient[(row * D_STRIDE + D_VALUE_OFFSET + owner * HEAD_DIM) / 4u + v] = x;
}
