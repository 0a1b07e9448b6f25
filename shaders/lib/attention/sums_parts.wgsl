// Gradients of keys and values by query head, where heads share keys: parts that attention_group_sum adds up.
@group(0) @binding(7) var<storage, read_write> parts: array<vec4<f32>>;

fn store_d_key(row: u32, v: u32, x: vec4<f32>) {
  parts[2u * row * HEADS * VECTORS + v] = x;
}

fn store_d_value(row: u32, v: u32, x: vec4<f32>) {
  parts[(2u * row + 1u) * HEADS * VECTORS + v] = x;
}
