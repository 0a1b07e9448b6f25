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
const WORD: u32 = 4u;
// A byte of a word that is shifted by 16 or by nothing, in place, is FACTORS times as much.
const FACTORS = vec4(1.0, 0.00390625, 1.0, 0.00390625);

// Four elements without their scale, each one over its factor. Below the bits of 2²³ an integer is its own float's
// mantissa: a subtraction does what a conversion would, which GPUs do more slowly.
fn codes_of(word: u32) -> vec4<f32> {
  let shifted = word ^ 0x80808080u;
  let bits = vec4(vec2(shifted), vec2(shifted >> 16u)) & vec4(0xffu, 0xff00u, 0xffu, 0xff00u);
  return bitcast<vec4<f32>>(bits | vec4(0x4b000000u)) - vec4(8388736.0, 8421376.0, 8388736.0, 8421376.0);
}
#elif B_INT4
// Operand `b` of the linear kernels in four bits an element, less 8, as lib/weights.wgsl reads them: eight
// elements to a word, and from word B_SCALES on a scale for 32 neighbours.
const WORD: u32 = 8u;
// Four bits in place are FACTORS times as much.
const FACTORS = vec4(1.0, 0.0625, 0.00390625, 0.000244140625);

// The four elements in the low half of a word, without their scale, each one over its factor. Below the bits of 2²³ an
// integer is its own float's mantissa: a subtraction does what a conversion would, which GPUs do more slowly.
fn codes_of(word: u32) -> vec4<f32> {
  let bits = vec4(word) & vec4(0xfu, 0xf0u, 0xf00u, 0xf000u);
  return bitcast<vec4<f32>>(bits | vec4(0x4b000000u)) - vec4(8388616.0, 8388736.0, 8390656.0, 8421376.0);
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

#if B_UNITS
// Packed, and read by units of UNIT_B elements that have one scale.
#if B_PAIRS
alias WordsB = vec2<u32>;
#else
alias WordsB = vec4<u32>;
#endif

#binding b: array<WordsB>

struct FetchedB {
  words: WordsB,
  scale: f32,
}

fn fetch_b(outer: u32, inner: u32) -> FetchedB {
  let i = outer * B_STRIDE + inner;
  let scale = B_SCALES + i / 32u;
  return FetchedB(b[i / UNIT_B], bitcast<f32>(b[scale / (UNIT_B / WORD)][scale % (UNIT_B / WORD)]));
}

// Elements 4 · q to 4 · q + 3 of a unit.
fn quad_b(fetched: FetchedB, q: u32) -> vec4<f32> {
  let word = fetched.words[q * 4u / WORD];
  return codes_of(word >> (q * 4u % WORD * 4u)) * (fetched.scale * FACTORS);
}
#elif B_PACKED
#binding b: array<u32>

// Four elements in the low bits, and their scale.
alias FetchedB = vec2<u32>;

fn fetch_b(outer: u32, inner: u32) -> FetchedB {
  let i = outer * B_STRIDE + inner;
  return vec2(b[i / WORD] >> (i % WORD * 4u), b[B_SCALES + i / 32u]);
}

fn elements_b(fetched: FetchedB) -> vec4<f32> {
  return codes_of(fetched.x) * (bitcast<f32>(fetched.y) * FACTORS);
}
#endif
