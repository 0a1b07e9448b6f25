// The weight of the norm before a product with few rows, K elements: by fours, or of a K that is no multiple of 4.
#if BY_FOUR
#operand norm_weight: array<vec4<f32>>

fn fetch_norm(v: u32) -> vec4<f32> {
  return #norm_weight[v];
}
#else
#operand norm_weight: array<f32>

fn fetch_norm(v: u32) -> vec4<f32> {
  var value = vec4<f32>();
  for (var i = 0u; i < min(4u, K - v * 4u); i++) {
    value[i] = #norm_weight[v * 4u + i];
  }
  return value;
}
#endif
