// Products of matrices that a subgroup holds: f16 operands, sums in f32. Tiles lie in workgroup memory in f16.
// Every invocation of a subgroup must call, with the same arguments.
alias Left = subgroup_matrix_left<f16, MATRIX_K, MATRIX_M>;
alias Right = subgroup_matrix_right<f16, MATRIX_N, MATRIX_K>;
alias Sums = subgroup_matrix_result<f32, MATRIX_N, MATRIX_M>;

var<private> subgroup_index: u32;
var<private> subgroup_count: u32;
var<private> subgroup_lane: u32;
var<workgroup> tile_a: array<f16, CELLS_A>;
var<workgroup> tile_b: array<f16, CELLS_B>;
var<workgroup> results: array<f32, GROUPS * RESULT_AREA>;

fn own_group(lane: u32) -> u32 {
  return subgroup_index;
}

// Four neighbours of a tile, the first at a multiple of 4.
fn put_cells_a(at: u32, value: vec4<f32>) {
  let cells = vec4<f16>(value);
  tile_a[at] = cells.x;
  tile_a[at + 1u] = cells.y;
  tile_a[at + 2u] = cells.z;
  tile_a[at + 3u] = cells.w;
}

fn put_cells_b(at: u32, value: vec4<f32>) {
  let cells = vec4<f16>(value);
  tile_b[at] = cells.x;
  tile_b[at + 1u] = cells.y;
  tile_b[at + 2u] = cells.z;
  tile_b[at + 3u] = cells.w;
}

// A matrix of a tile whose rows are those of the matrix, or its columns.
fn left_of_rows(at: u32) -> Left {
  return subgroupMatrixLoad<Left, row_major>(&tile_a, at, ROW_A);
}

fn left_of_columns(at: u32) -> Left {
  return subgroupMatrixLoad<Left, col_major>(&tile_a, at, ROW_A);
}

fn right_of_rows(at: u32) -> Right {
  return subgroupMatrixLoad<Right, row_major>(&tile_b, at, ROW_B);
}

fn right_of_columns(at: u32) -> Right {
  return subgroupMatrixLoad<Right, col_major>(&tile_b, at, ROW_B);
}

fn multiply(left: Left, right: Right, sums: Sums) -> Sums {
  return subgroupMatrixMultiplyAccumulate(left, right, sums);
}

fn put_sums(at: u32, sums: Sums) {
  subgroupMatrixStore<row_major>(&results, at, sums, RESULT_PITCH);
}
