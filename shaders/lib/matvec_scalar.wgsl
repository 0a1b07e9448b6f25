// Operands of matvec read one element at a time, for K that is no multiple of 4.
@group(0) @binding(0) var<storage, read> a: array<f32>;
@group(0) @binding(1) var<storage, read> b: array<f32>;

fn product(n: u32, k: u32) -> f32 {
  var total = 0.0;
  for (var i = k; i < min(k + 4u, K); i++) {
    total += a[i] * b[n * K + i];
  }
  return total;
}
