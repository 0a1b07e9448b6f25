// Operand `b` of the linear kernels in f32, four elements at a time.
@group(0) @binding(1) var<storage, read> b: array<vec4<f32>>;

alias FetchedB = vec4<f32>;

// Elements inner … inner + 3 of row outer of `b`; `inner` is a multiple of 4.
fn fetch_b(outer: u32, inner: u32) -> FetchedB {
  return b[outer * (B_STRIDE / 4u) + inner / 4u];
}

fn elements_b(fetched: FetchedB) -> vec4<f32> {
  return fetched;
}
