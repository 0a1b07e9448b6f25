// Operand `a` of products of matrices in f32, four elements at a time: every row begins at a multiple of 4.
@group(0) @binding(0) var<storage, read> a: array<vec4<f32>>;

alias FetchedA = vec4<f32>;

// Elements inner … inner + 3 of row outer of `a`; `inner` is a multiple of 4.
fn fetch_a(outer: u32, inner: u32, column: u32) -> FetchedA {
  return a[outer * (A_STRIDE / 4u) + (column + inner) / 4u];
}

fn elements_a(fetched: FetchedA) -> vec4<f32> {
  return fetched;
}
