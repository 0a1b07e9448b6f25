// Operand `b` of the linear kernels in signed bytes, as lib/weights/int8.wgsl reads them: four elements to a
// word, and from word B_SCALES on a scale for 32 neighbours.
@group(0) @binding(1) var<storage, read> b: array<u32>;

// Four elements, and their scale: unpacked where they are used, since a conversion waits for its load.
alias FetchedB = vec2<u32>;

// Elements inner … inner + 3 of row outer of `b`; `inner` is a multiple of 4.
fn fetch_b(outer: u32, inner: u32) -> FetchedB {
  let i = outer * B_STRIDE + inner;
  return vec2(b[i / 4u], b[B_SCALES + i / 32u]);
}

fn elements_b(fetched: FetchedB) -> vec4<f32> {
  let bytes = bitcast<vec4<i32>>(vec4(fetched.x) << vec4(24u, 16u, 8u, 0u)) >> vec4(24u);
  return bitcast<f32>(fetched.y) * vec4<f32>(bytes);
}
