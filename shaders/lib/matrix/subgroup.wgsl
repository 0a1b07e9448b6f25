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

// Vector `i` of a tile. The remainders tell browsers that the place is within the tile.
fn put_a(i: u32, fetched: FetchedA) {
  let vector = i % VECTORS_A;
  let line = vector / ACROSS_A;
  let four = vector % ACROSS_A;
  let panel = line / LINES_A + four / FOURS_A;
  let at = line % LINES_A * ROW_A + four % FOURS_A * 4u;
  let cells = cells_a(fetched);
  tile_a[panel][at] = cells.x;
  tile_a[panel][at + 1u] = cells.y;
  tile_a[panel][at + 2u] = cells.z;
  tile_a[panel][at + 3u] = cells.w;
}

fn put_b(i: u32, fetched: FetchedB) {
  let vector = i % VECTORS_B;
  let line = vector / ACROSS_B;
  let four = vector % ACROSS_B;
  let panel = line / LINES_B + four / FOURS_B;
  let at = line % LINES_B * ROW_B + four % FOURS_B * 4u;
  let cells = cells_b(fetched);
  tile_b[panel][at] = cells.x;
  tile_b[panel][at + 1u] = cells.y;
  tile_b[panel][at + 2u] = cells.z;
  tile_b[panel][at + 3u] = cells.w;
}

fn put_sums(group: u32, sums: Sums) {
  subgroupMatrixStore<row_major>(&results[group % SUBGROUPS], 0u, sums, RESULT_PITCH);
}

fn store_sums(at: u32, sums: Sums) {
  subgroupMatrixStore<row_major>(&c, at, sums, C_STRIDE);
}
