// What lib/attention/matrix_subgroup.wgsl does, in plain WGSL: LANES neighbouring invocations stand in for a
// subgroup, and the sums of a matrix are divided among them. For tests on devices without matrices.
alias Sums = array<f32, MATRIX_M * MATRIX_N / LANES>;
alias Cells = vec2<u32>;

var<private> matrix_lane: u32;

fn own_group(lane: u32) -> u32 {
  matrix_lane = lane % LANES;
  return lane / LANES;
}

fn cells_of(x: vec4<f32>) -> Cells {
  return vec2(pack2x16float(x.xy), pack2x16float(x.zw));
}

fn halves_of(halves: vec2<u32>) -> Cells {
  return halves;
}

// Element `i` of the four in a tile's cells.
fn half_of(four: Cells, i: u32) -> f32 {
  let two = unpack2x16float(select(four.x, four.y, i % 4u >= 2u));
  return select(two.x, two.y, i % 2u == 1u);
}
