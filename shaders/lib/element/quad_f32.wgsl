// Four elements of a tensor stored in f32.
alias Quad = vec4<f32>;

fn unpack_quad(quad: Quad) -> vec4<f32> {
  return quad;
}

fn pack_quad(x: vec4<f32>) -> Quad {
  return x;
}
