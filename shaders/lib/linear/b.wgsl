// Operand `b` of the linear kernels, read: [K, N], or [N, K] for matmul_t; B_STRIDE elements per row. `fetch_b` has elements
// inner … inner + 3 of row outer. Unpacked where they are used: a conversion waits for its load.
#if B_SCALAR
// Operand `b` of the linear kernels in f32, one element at a time, for rows of any length.
#binding b: array<f32>

alias FetchedB = vec4<f32>;

fn fetch_b(outer: u32, inner: u32) -> FetchedB {
  let i = outer * B_STRIDE + inner;
  var value = vec4(b[i], 0.0, 0.0, 0.0);
  if inner + 1u < B_INNER {
    value.y = b[i + 1u];
  }
  if inner + 2u < B_INNER {
    value.z = b[i + 2u];
  }
  if inner + 3u < B_INNER {
    value.w = b[i + 3u];
  }
  return value;
}

fn elements_b(fetched: FetchedB) -> vec4<f32> {
  return fetched;
}
#elif B_F16
// Operand `b` of the linear kernels in f16, two elements to a word: needs no feature.
#binding b: array<vec2<u32>>

alias FetchedB = vec2<u32>;

fn fetch_b(outer: u32, inner: u32) -> FetchedB {
  return b[outer * (B_STRIDE / 4u) + inner / 4u];
}

fn elements_b(fetched: FetchedB) -> vec4<f32> {
  return vec4(unpack2x16float(fetched.x), unpack2x16float(fetched.y));
}
#elif B_INT8
// Operand `b` of the linear kernels in signed bytes, as lib/weights.wgsl reads them: four elements to a
// word, and from word B_SCALES on a scale for 32 neighbours.
#binding b: array<u32>

// Four elements, and their scale.
alias FetchedB = vec2<u32>;

fn fetch_b(outer: u32, inner: u32) -> FetchedB {
  let i = outer * B_STRIDE + inner;
  return vec2(b[i / 4u], b[B_SCALES + i / 32u]);
}

fn elements_b(fetched: FetchedB) -> vec4<f32> {
  let bytes = bitcast<vec4<i32>>(vec4(fetched.x) << vec4(24u, 16u, 8u, 0u)) >> vec4(24u);
  return bitcast<f32>(fetched.y) * vec4<f32>(bytes);
}
#elif B_INT4
// Operand `b` of the linear kernels in four bits an element, less 8, as lib/weights.wgsl reads them: eight
// elements to a word, and from word B_SCALES on a scale for 32 neighbours.
#binding b: array<u32>

// Four elements in the low half, and their scale.
alias FetchedB = vec2<u32>;

fn fetch_b(outer: u32, inner: u32) -> FetchedB {
  let i = outer * B_STRIDE + inner;
  return vec2(b[i / 8u] >> (4u * (i % 8u)), b[B_SCALES + i / 32u]);
}

fn elements_b(fetched: FetchedB) -> vec4<f32> {
  let nibbles = (vec4(fetched.x) >> vec4(0u, 4u, 8u, 12u)) & vec4(15u);
  return bitcast<f32>(fetched.y) * (vec4<f32>(nibbles) - 8.0);
}
#else
// Operand `b` of the linear kernels in f32, four elements at a time.
#binding b: array<vec4<f32>>

alias FetchedB = vec4<f32>;

fn fetch_b(outer: u32, inner: u32) -> FetchedB {
  return b[outer * (B_STRIDE / 4u) + inner / 4u];
}

fn elements_b(fetched: FetchedB) -> vec4<f32> {
  return fetched;
}
#endif
