// What a product is added to: a bias, f32 [C_STRIDE].
@group(0) @binding(5) var<storage, read> bias: array<f32>;

fn previous(i: u32) -> f32 {
  return bias[i % C_STRIDE];
}
