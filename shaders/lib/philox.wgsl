// Philox4x32-10 (Salmon et al., "Parallel random numbers: as easy as 1, 2, 3", SC 2011): integer
// arithmetic only, so every adapter draws the same numbers as the host.
fn multiply_wide(a: u32, b: u32) -> vec2<u32> {
  let a0 = a & 0xffffu;
  let a1 = a >> 16u;
  let b0 = b & 0xffffu;
  let b1 = b >> 16u;
  let low = a0 * b0;
  let middle = a1 * b0 + (low >> 16u);
  let cross = a0 * b1 + (middle & 0xffffu);
  return vec2(a1 * b1 + (middle >> 16u) + (cross >> 16u), (cross << 16u) | (low & 0xffffu));
}

fn philox(start: vec4<u32>, seed: vec2<u32>) -> vec4<u32> {
  var counter = start;
  var key = seed;
  for (var round = 0u; round < 10u; round++) {
    let x = multiply_wide(0xd2511f53u, counter.x);
    let z = multiply_wide(0xcd9e8d57u, counter.z);
    counter = vec4(z.x ^ counter.y ^ key.x, z.y, x.x ^ counter.w ^ key.y, x.y);
    key += vec2(0x9e3779b9u, 0xbb67ae85u);
  }
  return counter;
}

// Uniform in [0, 1) from the top 24 bits.
fn uniform_float(bits: u32) -> f32 {
  return f32(bits >> 8u) * 5.9604644775390625e-8;
}
