// Shared by the tiled attention kernels: WORKGROUP invocations as ROW_GROUPS × COLUMN_GROUPS over
// BQ rows (those that the workgroup owns) and BK columns (those it walks along). An invocation owns
// the RQ rows group + r · ROW_GROUPS, of their scores the RK columns column + j · COLUMN_GROUPS, of
// their results the RV vectors column + i · COLUMN_GROUPS, the last of them maybe shared. Head dimensions
// are counted in vectors of four.
//
// Rows are staged whole and once if they are RESIDENT, else CHUNK vectors at a time for each tile of
// columns; columns are staged whole. The pitch of a row is odd, so that neighbouring rows begin in
// different banks.
//
// Loops up to RQ, RK, RV and so on are unrolled when the kernel is composed. Tiles are arrays of
// arrays so that an unrolled index is a constant: a browser clamps only the other index, which is
// the same for all of an invocation's rows or columns.
//
// RW of an invocation's result vectors are its own. Where dealing VECTORS out to the COLUMN_GROUPS
// leaves REST vectors over, and these divide the groups, SHARES invocations have one of them together:
// each sums its share of the columns, and at the end the shares are added up. Else SHARES is 1.

// Kinds of rows and of columns in the backward kernels, where each has two.
const QUERIES: u32 = 0u;
const D_OUTPUTS: u32 = 1u;
const KEYS: u32 = 0u;
const VALUES: u32 = 1u;

const COLUMN_GROUPS: u32 = WORKGROUP / ROW_GROUPS;
const ROW_PITCH: u32 = CHUNK | 1u;
const COLUMN_PITCH: u32 = VECTORS | 1u;
const COLUMN_SPAN: u32 = COLUMN_GROUPS * COLUMN_PITCH;
const WEIGHT_PITCH: u32 = ROW_GROUPS | 1u;
const PATCH_ROWS: u32 = min(ROW_GROUPS, 4u);
const PATCH_COLUMNS: u32 = min(COLUMN_GROUPS, 8u);

alias Scores = array<array<f32, RK>, RQ>;
alias Results = array<array<vec4<f32>, RV>, RQ>;

var<workgroup> row_tile: array<array<vec4<f32>, ROW_GROUPS * ROW_PITCH>, ROW_KINDS * RQ>;
var<workgroup> column_tile: array<array<vec4<f32>, COLUMN_SPAN>, COLUMN_KINDS * RK>;
// Weights of four rows of one invocation are a vector.
var<workgroup> weight_tile: array<array<array<vec4<f32>, COLUMN_GROUPS * WEIGHT_PITCH>, RQ4>, WEIGHT_KINDS * RK>;

// The row group and the column of an invocation. They lie in patches of 4×8: neighbours share a column, and
// those two apart a row group, so that hardware that reads for a quarter of a subgroup at a time finds each
// vector twice in a half.
fn group_and_column(lane: u32) -> vec2<u32> {
  let pair = lane % (PATCH_ROWS * PATCH_COLUMNS) / 2u;
  let block = lane / (PATCH_ROWS * PATCH_COLUMNS);
  return vec2(
    block / (COLUMN_GROUPS / PATCH_COLUMNS) * PATCH_ROWS + pair / PATCH_COLUMNS * 2u + lane % 2u,
    block % (COLUMN_GROUPS / PATCH_COLUMNS) * PATCH_COLUMNS + pair % PATCH_COLUMNS);
}

// Puts vector `v` of a staged row in its place; `kind` counts rows of the same tile.
fn put_row(kind: u32, row: u32, v: u32, value: vec4<f32>) {
  row_tile[kind * RQ + row / ROW_GROUPS][row % ROW_GROUPS * ROW_PITCH + v] = value;
}

fn put_column(kind: u32, column: u32, v: u32, value: vec4<f32>) {
  column_tile[kind * RK + column / COLUMN_GROUPS][column % COLUMN_GROUPS * COLUMN_PITCH + v] = value;
}

// scores += the products of CHUNK vectors of the staged rows with those of the columns from vector
// `first` on.
fn add_products(scores: ptr<function, Scores>, rows: u32, columns: u32, group: u32, column: u32, first: u32) {
  for (var v = 0u; v < CHUNK; v++) {
    var right = array<vec4<f32>, RK>();
    #unroll for (var j = 0u; j < RK; j++) {
      right[j] = column_tile[columns * RK + j][column * COLUMN_PITCH + first + v];
    }
    #unroll for (var r = 0u; r < RQ; r++) {
      let left = row_tile[rows * RQ + r][group * ROW_PITCH + v];
      #unroll for (var j = 0u; j < RK; j++) {
        (*scores)[r][j] = fma(left.x, right[j].x, (*scores)[r][j]);
        (*scores)[r][j] = fma(left.y, right[j].y, (*scores)[r][j]);
        (*scores)[r][j] = fma(left.z, right[j].z, (*scores)[r][j]);
        (*scores)[r][j] = fma(left.w, right[j].w, (*scores)[r][j]);
      }
    }
  }
}

// Puts this invocation's weights where add_weighted reads them.
fn put_weights(weights: ptr<function, Scores>, kind: u32, group: u32, column: u32) {
  #unroll for (var j = 0u; j < RK; j++) {
    #unroll for (var r = 0u; r < RQ4; r++) {
      weight_tile[kind * RK + j][r][column * WEIGHT_PITCH + group] = vec4(
        (*weights)[r * 4u][j], (*weights)[r * 4u + 1u][j], (*weights)[r * 4u + 2u][j], (*weights)[r * 4u + 3u][j]);
    }
  }
}

// results += the weights times the staged columns.
fn add_weighted(results: ptr<function, Results>, weights: u32, columns: u32, group: u32, column: u32) {
  #unroll for (var j = 0u; j < RK; j++) {
    if RW > 0u {
      for (var c = 0u; c < COLUMN_GROUPS; c++) {
        var right = array<vec4<f32>, RV>();
        #unroll for (var i = 0u; i < RW; i++) {
          right[i] = column_tile[columns * RK + j][c * COLUMN_PITCH + min(column + i * COLUMN_GROUPS, VECTORS - 1u)];
        }
        #unroll for (var r = 0u; r < RQ4; r++) {
          let left = weight_tile[weights * RK + j][r][c * WEIGHT_PITCH + group];
          #unroll for (var i = 0u; i < RW; i++) {
            (*results)[r * 4u][i] += left.x * right[i];
            (*results)[r * 4u + 1u][i] += left.y * right[i];
            (*results)[r * 4u + 2u][i] += left.z * right[i];
            (*results)[r * 4u + 3u][i] += left.w * right[i];
          }
        }
      }
    }
    if SHARES > 1u {
      for (var n = 0u; n < COLUMN_GROUPS / SHARES; n++) {
        let c = column / REST * (COLUMN_GROUPS / SHARES) + n;
        let right = column_tile[columns * RK + j][c * COLUMN_PITCH + RW * COLUMN_GROUPS + column % REST];
        #unroll for (var r = 0u; r < RQ4; r++) {
          let left = weight_tile[weights * RK + j][r][c * WEIGHT_PITCH + group];
          (*results)[r * 4u][RV - 1u] += left.x * right;
          (*results)[r * 4u + 1u][RV - 1u] += left.y * right;
          (*results)[r * 4u + 2u][RV - 1u] += left.z * right;
          (*results)[r * 4u + 3u][RV - 1u] += left.w * right;
        }
      }
    }
  }
}

// Place of a share in the tile of columns, which is free once the last of them is summed; the first
// share stays with its invocation.
fn share_place(share: u32, r: u32, group: u32, column: u32) -> u32 {
  return (((share - 1u) * RQ + r) * ROW_GROUPS + group) * REST + column % REST;
}

// Leaves this invocation's share of a result for the one that has the first; `kind` counts results of
// the same invocation. A barrier belongs between this and take_shares.
fn put_shares(results: ptr<function, Results>, kind: u32, group: u32, column: u32) {
  if SHARES > 1u && column >= REST {
    #unroll for (var r = 0u; r < RQ; r++) {
      let place = share_place(column / REST, r, group, column);
      column_tile[kind * RK + place / COLUMN_SPAN][place % COLUMN_SPAN] = (*results)[r][RV - 1u];
    }
  }
}

// Adds the other shares to the first.
fn take_shares(results: ptr<function, Results>, kind: u32, group: u32, column: u32) {
  if SHARES > 1u && column < REST {
    for (var share = 1u; share < SHARES; share++) {
      #unroll for (var r = 0u; r < RQ; r++) {
        let place = share_place(share, r, group, column);
        (*results)[r][RV - 1u] += column_tile[kind * RK + place / COLUMN_SPAN][place % COLUMN_SPAN];
      }
    }
  }
}
