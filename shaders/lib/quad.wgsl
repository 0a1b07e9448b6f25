// Four elements of a tensor, stored in f32 or F16. In f16 there are two to a word: core WGSL, no feature needed. What f16
// cannot hold is bounded to ±65504 (packing it would be indeterminate); what is not finite stays not finite.
#if F16
#import lib/finite
alias Quad = vec2<u32>;

fn unpack_quad(quad: Quad) -> vec4<f32> {
  return vec4(unpack2x16float(quad.x), unpack2x16float(quad.y));
}

fn pack_pair(x: vec2<f32>) -> u32 {
  let words = pack2x16float(clamp(x, vec2(-65504.0), vec2(65504.0)));
  return select(HALF_NOT_A_NUMBER, words, is_finite(x.x) && is_finite(x.y));
}

fn pack_quad(x: vec4<f32>) -> Quad {
  return vec2(pack_pair(x.xy), pack_pair(x.zw));
}
#else
alias Quad = vec4<f32>;

fn unpack_quad(quad: Quad) -> vec4<f32> {
  return quad;
}

fn pack_quad(x: vec4<f32>) -> Quad {
  return x;
}
#endif
