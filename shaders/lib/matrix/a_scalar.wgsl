// Operand `a` of products of matrices as lib/linear/scalar.wgsl reads it.
alias FetchedA = vec4<f32>;

fn elements_a(fetched: FetchedA) -> vec4<f32> {
  return fetched;
}
