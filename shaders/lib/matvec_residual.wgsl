// What a matrix-vector product is added to: the residual stream.
@group(0) @binding(4) var<storage, read> residual: array<f32>;

fn previous(i: u32) -> f32 {
  return residual[i];
}
