// What products of decoded rows read: vector v of four elements of a row of `a`, of a row of the matrix `b` unless that is
// read by units (lib/weights.wgsl), and with NORMED of the weight of the RMSNorm before the product, K elements.
#if NORMED
#import lib/matvec/norm_weight
#endif
#if BY_FOUR
#if BATCHED
// In rows, so that an index is checked once for a row and once for all vectors of the same place.
#operand a: array<array<vec4<f32>, K / 4u>>

fn fetch_a(row: u32, v: u32) -> vec4<f32> {
  return #a[row][v];
}
#else
#operand a: array<vec4<f32>>

fn fetch_a(row: u32, v: u32) -> vec4<f32> {
  return #a[v];
}
#endif
#if !BY_UNITS
#if BATCHED
#operand b: array<array<vec4<f32>, K / 4u>>

fn fetch_b(n: u32, v: u32) -> vec4<f32> {
  return #b[n][v];
}
#else
#operand b: array<vec4<f32>>

fn fetch_b(n: u32, v: u32) -> vec4<f32> {
  return #b[n * (K / 4u) + v];
}
#endif
#endif
#else
// One element at a time, for K that is no multiple of 4. Elements past K are zero.
#operand a: array<f32>
#operand b: array<f32>

fn fetch_a(row: u32, v: u32) -> vec4<f32> {
  var value = vec4<f32>();
  for (var i = 0u; i < min(4u, K - v * 4u); i++) {
    value[i] = #a[row * K + v * 4u + i];
  }
  return value;
}

fn fetch_b(n: u32, v: u32) -> vec4<f32> {
  var value = vec4<f32>();
  for (var i = 0u; i < min(4u, K - v * 4u); i++) {
    value[i] = #b[n * K + v * 4u + i];
  }
  return value;
}
#endif
