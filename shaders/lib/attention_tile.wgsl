// Shared by the tiled attention kernels: WORKGROUP invocations as ROW_GROUPS × COLUMN_GROUPS over
// BQ rows (those that the workgroup owns) and BK columns (those it walks along). An invocation owns
// the rows group + r · ROW_GROUPS, of their scores the columns column + j · COLUMN_GROUPS, of their
// results the vectors column + i · COLUMN_GROUPS. Head dimensions are counted in vectors of four.
//
// Rows are staged CHUNK vectors at a time, columns whole. Both lie in workgroup memory with an odd
// number of vectors a row, so that neighbouring rows begin in different banks.
const VECTORS: u32 = HEAD_DIM / 4u;
const COLUMN_GROUPS: u32 = WORKGROUP / ROW_GROUPS;
const RQ: u32 = BQ / ROW_GROUPS;
const RK: u32 = BK / COLUMN_GROUPS;
const RV: u32 = (VECTORS + COLUMN_GROUPS - 1u) / COLUMN_GROUPS;
const ROW_PITCH: u32 = CHUNK | 1u;
const COLUMN_PITCH: u32 = VECTORS | 1u;
const LOG2_E: f32 = 1.4426950408889634;
const LN_2: f32 = 0.69314718055994531;
// Stands for minus infinity: some compilers reject the real one, and differences of it are NaN.
const MASKED: f32 = -1e30;
const UNMASKED: f32 = -5e29;

alias Scores = array<array<f32, RK>, RQ>;
alias Results = array<array<vec4<f32>, RV>, RQ>;

// Chunks of rows, and weights once the chunks have been used: element (row, column) of the weights
// is component (r % 4) of vector weight_at(group, column) + r / 4 · ROW_GROUPS, so that four rows of
// one invocation are one vector.
var<workgroup> row_tile: array<vec4<f32>, ROW_TILE>;
var<workgroup> column_tile: array<vec4<f32>, COLUMN_TILES * BK * COLUMN_PITCH>;

fn weight_at(group: u32, column: u32) -> u32 {
  return column * (BQ / 4u) + group;
}

// scores += the products of CHUNK vectors of the staged rows with the columns staged at `columns`,
// from vector `first` on.
fn add_products(scores: ptr<function, Scores>, rows: u32, columns: u32, group: u32, column: u32, first: u32) {
  for (var v = 0u; v < CHUNK; v++) {
    var right = array<vec4<f32>, RK>();
    for (var j = 0u; j < RK; j++) {
      right[j] = column_tile[columns + (column + j * COLUMN_GROUPS) * COLUMN_PITCH + first + v];
    }
    for (var r = 0u; r < RQ; r++) {
      let left = row_tile[rows + (group + r * ROW_GROUPS) * ROW_PITCH + v];
      for (var j = 0u; j < RK; j++) {
        (*scores)[r][j] = fma(left.x, right[j].x, (*scores)[r][j]);
        (*scores)[r][j] = fma(left.y, right[j].y, (*scores)[r][j]);
        (*scores)[r][j] = fma(left.z, right[j].z, (*scores)[r][j]);
        (*scores)[r][j] = fma(left.w, right[j].w, (*scores)[r][j]);
      }
    }
  }
}

// Puts this invocation's weights where add_weighted reads them.
fn store_weights(weights: ptr<function, Scores>, at: u32, group: u32, column: u32) {
  for (var j = 0u; j < RK; j++) {
    for (var r = 0u; r < RQ; r += 4u) {
      row_tile[at + weight_at(group, column + j * COLUMN_GROUPS) + r / 4u * ROW_GROUPS] =
        vec4((*weights)[r][j], (*weights)[r + 1u][j], (*weights)[r + 2u][j], (*weights)[r + 3u][j]);
    }
  }
}

// results += the weights at `at` times the columns staged at `columns`.
fn add_weighted(results: ptr<function, Results>, at: u32, columns: u32, group: u32, column: u32) {
  for (var k = 0u; k < BK; k++) {
    var right = array<vec4<f32>, RV>();
    for (var i = 0u; i < RV; i++) {
      right[i] = column_tile[columns + k * COLUMN_PITCH + min(column + i * COLUMN_GROUPS, VECTORS - 1u)];
    }
    for (var r = 0u; r < RQ; r += 4u) {
      let left = row_tile[at + weight_at(group, k) + r / 4u * ROW_GROUPS];
      for (var i = 0u; i < RV; i++) {
        (*results)[r][i] += left.x * right[i];
        (*results)[r + 1u][i] += left.y * right[i];
        (*results)[r + 2u][i] += left.z * right[i];
        (*results)[r + 3u][i] += left.w * right[i];
      }
    }
  }
}
