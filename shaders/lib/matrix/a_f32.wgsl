// Operand `a` of products of matrices in f32.
alias FetchedA = vec4<f32>;

fn elements_a(fetched: FetchedA) -> vec4<f32> {
  return fetched;
}
