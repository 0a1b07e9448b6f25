// As lib/matvec/heads.wgsl, with a bias added to the products before the rotation.
//
//   2 c      write       f32 [HEADS · HEAD_DIM]
//   3 step   uniform
//   5 table  read        vec2 [positions, HEAD_DIM / 2]     (cos, sin)
//   6 cache  write       f32 [rows, 2 · KV_HEADS · HEAD_DIM]
//   7 bias   read        f32 [(HEADS + 2 · KV_HEADS) · HEAD_DIM]
@group(0) @binding(3) var<uniform> step: Step;
@group(0) @binding(5) var<storage, read> table: array<vec2<f32>>;
@group(0) @binding(6) var<storage, read_write> cache: array<f32>;
@group(0) @binding(7) var<storage, read> bias: array<f32>;

fn matrix_row(p: u32, n: u32) -> u32 {
  return n / HALF * HEAD_DIM + n % HALF + p * HALF;
}

fn store(sums: ptr<function, array<f32, SUMS>>, n: u32) {
  let factor = scale(sums);
  let head = n / HALF;
  let i = matrix_row(0u, n);
  var pair = vec2((*sums)[0], (*sums)[1]) * factor + vec2(bias[i], bias[i + HALF]);
  if head < HEADS + KV_HEADS {
    let rotation = table[step.position * HALF + n % HALF];
    pair = vec2(pair.x * rotation.x - pair.y * rotation.y, pair.y * rotation.x + pair.x * rotation.y);
  }
  if head < HEADS {
    c[i] = pair.x;
    c[i + HALF] = pair.y;
  } else {
    let at = key_row(step.position) * (2u * KV_HEADS * HEAD_DIM) + i - HEADS * HEAD_DIM;
    cache[at] = pair.x;
    cache[at + HALF] = pair.y;
  }
}
