// Operands of matvec_rows read one element at a time, for K that is no multiple of 4.
@group(0) @binding(0) var<storage, read> a: array<f32>;
@group(0) @binding(1) var<storage, read> b: array<f32>;

// Elements 4 · v to 4 · v + 3, zero past K.
fn fetch_a(row: u32, v: u32) -> vec4<f32> {
  var value = vec4<f32>();
  for (var i = 0u; i < min(4u, K - v * 4u); i++) {
    value[i] = a[row * K + v * 4u + i];
  }
  return value;
}

fn fetch_b(row: u32, v: u32) -> vec4<f32> {
  var value = vec4<f32>();
  for (var i = 0u; i < min(4u, K - v * 4u); i++) {
    value[i] = b[row * K + v * 4u + i];
  }
  return value;
}
