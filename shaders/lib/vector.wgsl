// A row or a run by vectors of four elements, 16 bytes to a load, or by elements where its length is no multiple of four.
#if BY_FOUR
alias Vector = vec4<f32>;
alias Places = vec4<u32>;
const VECTOR_SIZE: u32 = 4u;
#else
alias Vector = f32;
alias Places = u32;
const VECTOR_SIZE: u32 = 1u;
#endif

fn total(value: Vector) -> f32 {
#if BY_FOUR
  return dot(value, Vector(1.0));
#else
  return value;
#endif
}

// Where the elements of vector i are.
fn places(i: u32) -> Places {
#if BY_FOUR
  return 4u * i + vec4(0u, 1u, 2u, 3u);
#else
  return i;
#endif
}
