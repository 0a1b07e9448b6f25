// Gradients of keys and values where each query head has its own.
fn store_d_key(row: u32, v: u32, x: vec4<f32>) {
  gradient[row * (STRIDE / 4u) + HEADS * VECTORS + v] = x;
}

fn store_d_value(row: u32, v: u32, x: vec4<f32>) {
  gradient[row * (STRIDE / 4u) + 2u * HEADS * VECTORS + v] = x;
}
