// What is added to a product of matvec_rows: a bias.
@group(0) @binding(ADDED) var<storage, read> bias: array<f32>;

fn added(place: u32, column: u32) -> f32 {
  return bias[column];
}
