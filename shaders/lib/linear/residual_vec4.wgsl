// What a product is added to: the residual stream, which stays as it was.
@group(0) @binding(5) var<storage, read> residual: array<vec4<f32>>;

fn previous(i: u32) -> vec4<f32> {
  return residual[i];
}
