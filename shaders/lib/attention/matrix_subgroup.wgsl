// Matrices that a subgroup holds, for attention: f16 operands, sums in f32. Tiles and products:
// kernels/attention/matrix.rs.
alias Left = subgroup_matrix_left<f16, MATRIX_K, MATRIX_M>;
alias Right = subgroup_matrix_right<f16, MATRIX_N, MATRIX_K>;
alias Sums = subgroup_matrix_result<f32, MATRIX_N, MATRIX_M>;
// Four elements of a tile.
alias Cells = vec4<f16>;

var<private> subgroup_index: u32;
var<private> subgroup_count: u32;
var<private> subgroup_lane: u32;

// The subgroup of an invocation. Where subgroups are narrower than the widest there are more than work is for.
fn own_group(lane: u32) -> u32 {
  return subgroup_index;
}

fn cells_of(x: vec4<f32>) -> Cells {
  return vec4<f16>(x);
}

fn halves_of(halves: vec2<u32>) -> Cells {
  return bitcast<vec4<f16>>(halves);
}
