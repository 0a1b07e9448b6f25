// The weight of the norm before a matrix-vector product, four elements at a time.
@group(0) @binding(NORM_WEIGHT) var<storage, read> norm_weight: array<vec4<f32>>;

fn fetch_norm(v: u32) -> vec4<f32> {
  return norm_weight[v];
}
