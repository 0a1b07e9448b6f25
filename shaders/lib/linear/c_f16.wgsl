// Four results of a product in f16, two to a word. Needs lib/element/quad_f16.wgsl.
alias Result = Quad;

fn result_of(x: vec4<f32>) -> Result {
  return pack_quad(x);
}
