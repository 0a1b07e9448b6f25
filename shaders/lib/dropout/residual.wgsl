//   4 residual  read  f32 [tokens, COLUMNS]  added to what is kept
@group(0) @binding(4) var<storage, read> residual: array<f32>;

fn residual_of(at: u32) -> f32 {
  return residual[at];
}
