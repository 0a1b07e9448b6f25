// Products of matrices that a subgroup holds: f16 operands, sums in f32. Tiles lie in workgroup memory in f16, a
// panel for the subgroups that share it, so that a matrix's place in its panel is a constant: of others a browser
// checks at run time whether they are within the array.
alias Left = subgroup_matrix_left<f16, MATRIX_K, MATRIX_M>;
alias Right = subgroup_matrix_right<f16, MATRIX_N, MATRIX_K>;
alias Sums = subgroup_matrix_result<f32, MATRIX_N, MATRIX_M>;

var<private> subgroup_index: u32;
var<private> subgroup_count: u32;
var<private> subgroup_lane: u32;
var<workgroup> tile_a: array<array<f16, LINES_A * ROW_A>, PANELS_A>;
var<workgroup> tile_b: array<array<f16, LINES_B * ROW_B>, PANELS_B>;
var<workgroup> results: array<array<f32, MATRIX_M * RESULT_PITCH>, SUBGROUPS>;

fn own_group(lane: u32) -> u32 {
  return subgroup_index;
}

// Puts what an invocation loaded into the tiles. Browsers see that every place is within them: the remainder tells
// them the range of an invocation's number, and all else is in this function.
fn put_tiles(
    lane: u32,
    next_a: ptr<function, array<FetchedA, LOADS_A>>,
    next_b: ptr<function, array<FetchedB, LOADS_B>>) {
  let own = lane % WORKGROUP;
  let line_a = own / ACROSS_A;
  let four_a = own % ACROSS_A;
  let panel_a = line_a / LINES_A + four_a / FOURS_A;
  let place_a = line_a % LINES_A * ROW_A + four_a % FOURS_A * 4u;
  #unroll for (var i = 0u; i < LOADS_A; i++) {
    let cells = cells_a((*next_a)[i]);
    let panel = panel_a + i * APART_A / LINES_A;
    let at = place_a + i * APART_A % LINES_A * ROW_A;
    tile_a[panel][at] = cells.x;
    tile_a[panel][at + 1u] = cells.y;
    tile_a[panel][at + 2u] = cells.z;
    tile_a[panel][at + 3u] = cells.w;
  }
  let line_b = own / ACROSS_B;
  let four_b = own % ACROSS_B;
  let panel_b = line_b / LINES_B + four_b / FOURS_B;
  let place_b = line_b % LINES_B * ROW_B + four_b % FOURS_B * 4u;
  #unroll for (var i = 0u; i < LOADS_B; i++) {
    let cells = cells_b((*next_b)[i]);
    let panel = panel_b + i * APART_B / LINES_B;
    let at = place_b + i * APART_B % LINES_B * ROW_B;
    tile_b[panel][at] = cells.x;
    tile_b[panel][at + 1u] = cells.y;
    tile_b[panel][at + 2u] = cells.z;
    tile_b[panel][at + 3u] = cells.w;
  }
}

fn put_sums(group: u32, sums: Sums) {
  subgroupMatrixStore<row_major>(&results[group % SUBGROUPS], 0u, sums, RESULT_PITCH);
}
