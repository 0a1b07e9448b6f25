// A row or a run four elements, 16 bytes, to a load.
alias Vector = vec4<f32>;
alias Places = vec4<u32>;

fn total(value: Vector) -> f32 {
  return dot(value, Vector(1.0));
}

// Where the elements of vector i are.
fn places(i: u32) -> Places {
  return 4u * i + vec4(0u, 1u, 2u, 3u);
}
