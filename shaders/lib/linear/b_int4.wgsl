// Operand `b` of the linear kernels in four bits an element, less 8, as lib/weights/int4.wgsl reads them: eight
// elements to a word, and from word B_SCALES on a scale for 32 neighbours.
@group(0) @binding(1) var<storage, read> b: array<u32>;

// Four elements in the low half, and their scale: unpacked where they are used, since a conversion waits for
// its load.
alias FetchedB = vec2<u32>;

// Elements inner … inner + 3 of row outer of `b`; `inner` is a multiple of 4.
fn fetch_b(outer: u32, inner: u32) -> FetchedB {
  let i = outer * B_STRIDE + inner;
  return vec2(b[i / 8u] >> (4u * (i % 8u)), b[B_SCALES + i / 32u]);
}

fn elements_b(fetched: FetchedB) -> vec4<f32> {
  let nibbles = (vec4(fetched.x) >> vec4(0u, 4u, 8u, 12u)) & vec4(15u);
  return bitcast<f32>(fetched.y) * (vec4<f32>(nibbles) - 8.0);
}
