// Operand `b` of the linear kernels in f16, two elements to a word: needs no feature.
@group(0) @binding(1) var<storage, read> b: array<vec2<u32>>;

// Unpacked where they are used: a conversion waits for its load.
alias FetchedB = vec2<u32>;

// Elements inner … inner + 3 of row outer of `b`; `inner` is a multiple of 4.
fn fetch_b(outer: u32, inner: u32) -> FetchedB {
  return b[outer * (B_STRIDE / 4u) + inner / 4u];
}

fn elements_b(fetched: FetchedB) -> vec4<f32> {
  return vec4(unpack2x16float(fetched.x), unpack2x16float(fetched.y));
}
