// Four results of a product in f32.
alias Result = vec4<f32>;

fn result_of(x: vec4<f32>) -> Result {
  return x;
}
