// What matvec multiplies is the embedding of a token: a row of a, which is a table, f32 [tokens, K]. The first
// workgroup also writes it to x, so that no kernel of its own gathers it.
//
//   7 token  read   u32 [1]
//   8 x      write  f32 [K]
@group(0) @binding(7) var<storage, read> token: array<u32>;
@group(0) @binding(8) var<storage, read_write> x: array<vec4<f32>>;

var<private> first_vector: u32;

fn a_row() -> u32 {
  return first_vector;
}

fn find_row(lane: u32, group: u32) {
  first_vector = token[0] * (K / 4u);
  if group == 0u {
    for (var v = lane; v < K / 4u; v += WORKGROUP) {
      x[v] = a[first_vector + v];
    }
  }
}
