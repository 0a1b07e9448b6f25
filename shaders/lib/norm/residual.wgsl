// The result of a norm added to the residual stream (Gemma Team, arXiv:2408.00118).
@group(0) @binding(4) var<storage, read> residual: array<f32>;

fn finished(value: f32, i: u32) -> f32 {
  return value + residual[i];
}
