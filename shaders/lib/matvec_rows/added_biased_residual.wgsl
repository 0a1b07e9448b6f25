// What is added to a product of matvec_rows: a residual and a bias.
@group(0) @binding(ADDED) var<storage, read> residual: array<f32>;
@group(0) @binding(ADDED + 1u) var<storage, read> bias: array<f32>;

fn added(place: u32, column: u32) -> f32 {
  return residual[place] + bias[column];
}
