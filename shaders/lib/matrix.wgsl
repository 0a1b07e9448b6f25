// Matrices that a subgroup holds, of f16 operands with sums in f32: the only file that has names of this extension of
// WGSL. Where it is EMULATED another file has the same in plain WGSL.
//
// Operands lie in workgroup memory in f16, in panels. Every place in a panel is a constant: of others a browser checks at
// run time whether they are within the array. Remainders tell it so where they are none.
#if EMULATED
#import lib/matrix_emulated
#else
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

fn cells_of_f16(x: vec2<u32>) -> Cells {
  return bitcast<vec4<f16>>(x);
}

#if OF_FORWARD
// Of 05_attention_forward_matrix.wgsl.
var<workgroup> query_tile: array<array<f16, QUERY_CELLS>, ROW_PANELS>;
var<workgroup> key_tile: array<array<f16, COLUMN_CELLS>, KEY_PARTS>;
var<workgroup> value_tile: array<array<f16, COLUMN_CELLS>, KEY_PARTS>;
var<workgroup> weight_tile: array<array<f16, WEIGHT_CELLS>, PANELS>;

// Vector `four` of a line; lines are counted through all panels.
fn put_queries(line: u32, four: u32, cells: Cells) {
  let panel = line % BQ / ROWS;
  let at = line % ROWS * HEAD_PITCH + four % VECTORS * 4u;
  query_tile[panel][at] = cells.x;
  query_tile[panel][at + 1u] = cells.y;
  query_tile[panel][at + 2u] = cells.z;
  query_tile[panel][at + 3u] = cells.w;
}

fn put_keys(line: u32, four: u32, cells: Cells) {
  let part = line % BK / PART;
  let at = line % PART * HEAD_PITCH + four % VECTORS * 4u;
  key_tile[part][at] = cells.x;
  key_tile[part][at + 1u] = cells.y;
  key_tile[part][at + 2u] = cells.z;
  key_tile[part][at + 3u] = cells.w;
}

fn put_values(line: u32, four: u32, cells: Cells) {
  let part = line % BK / PART;
  let at = line % PART * HEAD_PITCH + four % VECTORS * 4u;
  value_tile[part][at] = cells.x;
  value_tile[part][at + 1u] = cells.y;
  value_tile[part][at + 2u] = cells.z;
  value_tile[part][at + 3u] = cells.w;
}

fn put_weights(line: u32, four: u32, cells: Cells) {
  let panel = line / ROWS % PANELS;
  let at = line % ROWS * WEIGHTS_PITCH + four % (PART / 4u) * 4u;
  weight_tile[panel][at] = cells.x;
  weight_tile[panel][at + 1u] = cells.y;
  weight_tile[panel][at + 2u] = cells.z;
  weight_tile[panel][at + 3u] = cells.w;
}

// sums += a panel's queries by the keys.
fn multiply_keys(own: u32, sums: ptr<function, Products>) {
  let panel = own % ROW_PANELS;
  let part = own / ROW_PANELS % KEY_PARTS;
  #unroll for (var s = 0u; s < DEPTH; s++) {
    #unroll for (var i = 0u; i < ROW_MATRICES; i++) {
      let left_#i = subgroupMatrixLoad<Left, row_major>(&query_tile[panel], i * MATRIX_M * HEAD_PITCH + s * MATRIX_K, HEAD_PITCH);
    }
    #unroll for (var j = 0u; j < TILE_MATRICES; j++) {
      let right_#j = subgroupMatrixLoad<Right, col_major>(&key_tile[part], j * MATRIX_N * HEAD_PITCH + s * MATRIX_K, HEAD_PITCH);
      #unroll for (var i = 0u; i < ROW_MATRICES; i++) {
        (*sums)[i][j] = subgroupMatrixMultiplyAccumulate(left_#i, right_#j, (*sums)[i][j]);
      }
    }
  }
}

// results += a panel's weights by the values.
fn add_values(own: u32, results: ptr<function, Results>) {
  let panel = own % PANELS;
  let part = own / ROW_PANELS % KEY_PARTS;
  #unroll for (var s = 0u; s < STEPS; s++) {
    #unroll for (var i = 0u; i < ROW_MATRICES; i++) {
      let left_#i = subgroupMatrixLoad<Left, row_major>(&weight_tile[panel], i * MATRIX_M * WEIGHTS_PITCH + s * MATRIX_K, WEIGHTS_PITCH);
    }
    #unroll for (var j = 0u; j < HEAD_MATRICES; j++) {
      let right_#j = subgroupMatrixLoad<Right, row_major>(&value_tile[part], s * MATRIX_K * HEAD_PITCH + j * MATRIX_N, HEAD_PITCH);
      #unroll for (var i = 0u; i < ROW_MATRICES; i++) {
        (*results)[i][j] = subgroupMatrixMultiplyAccumulate(left_#i, right_#j, (*results)[i][j]);
      }
    }
  }
}

fn store_products(own: u32, sums: ptr<function, Products>) {
  let panel = own % PANELS;
  #unroll for (var i = 0u; i < ROW_MATRICES; i++) {
    #unroll for (var j = 0u; j < TILE_MATRICES; j++) {
      subgroupMatrixStore<row_major>(&scores[panel], i * MATRIX_M * SCORES_PITCH + j * MATRIX_N, (*sums)[i][j], SCORES_PITCH);
    }
  }
}

// The results' columns of a strip, to the place of a panel's scores; and back. The strip is a number that the compiler
// knows: of each call one of these branches is left.
fn store_results(own: u32, strip: u32, results: ptr<function, Results>) {
  let panel = own % PANELS;
  #unroll for (var n = 0u; n < STRIPS; n++) {
    if strip == n {
      #unroll for (var i = 0u; i < ROW_MATRICES; i++) {
        #unroll for (var j = 0u; j < STRIP_MATRICES; j++) {
          subgroupMatrixStore<row_major>(
            &scores[panel], i * MATRIX_M * SCORES_PITCH + j * MATRIX_N, (*results)[i][n * STRIP_MATRICES + j], SCORES_PITCH);
        }
      }
    }
  }
}

fn load_results(own: u32, strip: u32, results: ptr<function, Results>) {
  let panel = own % PANELS;
  #unroll for (var n = 0u; n < STRIPS; n++) {
    if strip == n {
      #unroll for (var i = 0u; i < ROW_MATRICES; i++) {
        #unroll for (var j = 0u; j < STRIP_MATRICES; j++) {
          (*results)[i][n * STRIP_MATRICES + j] = subgroupMatrixLoad<Sums, row_major>(
            &scores[panel], i * MATRIX_M * SCORES_PITCH + j * MATRIX_N, SCORES_PITCH);
        }
      }
    }
  }
}

// The place of an invocation among all. Neighbours by place are a pair.
fn pair_place(lane: u32) -> u32 {
  return (subgroup_index * (WORKGROUP / subgroup_count) + subgroup_lane) % WORKGROUP;
}

// The larger value of a pair.
fn of_pair(panel: u32, at: u32, x: f32) -> f32 {
  return max(x, subgroupShuffleXor(x, 1u));
}
#elif OF_BACKWARD
// Of lib/attention/backward_matrix.wgsl.
alias Held = array<array<Left, DEPTH>, MATRICES>;
alias Results = array<array<Sums, ACROSS>, MATRICES>;

var<workgroup> columns: array<array<f16, BK * PITCH>, 2>;
var<workgroup> scores: array<array<f32, MATRIX_M * SCORE_PITCH>, SHEETS>;
var<workgroup> weights: array<array<f16, STRIP * SCALED_PITCH>, STRIPS * WEIGHT_KINDS>;

// Vector `v` of a line. The remainders tell browsers that the place is within the panel.
fn put_cells(panel: u32, line: u32, v: u32, cells: Cells) {
  let at = line % BK * PITCH + v % VECTORS * 4u;
  columns[panel % 2u][at] = cells.x;
  columns[panel % 2u][at + 1u] = cells.y;
  columns[panel % 2u][at + 2u] = cells.z;
  columns[panel % 2u][at + 3u] = cells.w;
}

fn put_weight(panel: u32, row: u32, column: u32, x: f32) {
  weights[panel % (STRIPS * WEIGHT_KINDS)][row % STRIP * SCALED_PITCH + column % BK] = f16(x);
}

// The strip of rows that lies in a panel of columns.
fn hold(held: ptr<function, Held>, panel: u32) {
  let kind = panel % 2u;
  #unroll for (var i = 0u; i < MATRICES; i++) {
    #unroll for (var s = 0u; s < DEPTH; s++) {
      (*held)[i][s] = subgroupMatrixLoad<Left, row_major>(&columns[kind], i * MATRIX_M * PITCH + s * MATRIX_K, PITCH);
    }
  }
}

// The held rows by all columns of a panel, into the sheets of this subgroup.
fn multiply_columns(held: ptr<function, Held>, own: u32, panel: u32) {
  let source = panel % 2u;
  #unroll for (var j = 0u; j < TILES; j++) {
    var sums = array<Sums, MATRICES>();
    #unroll for (var s = 0u; s < DEPTH; s++) {
      let right = subgroupMatrixLoad<Right, col_major>(
        &columns[source], j * MATRIX_N * PITCH + s * MATRIX_K, PITCH);
      #unroll for (var i = 0u; i < MATRICES; i++) {
        sums[i] = subgroupMatrixMultiplyAccumulate((*held)[i][s], right, sums[i]);
      }
    }
    if own < PAIRED {
      #unroll for (var i = 0u; i < MATRICES; i++) {
        let sheet = own * MATRICES + i;
        subgroupMatrixStore<row_major>(&scores[sheet % SHEETS], j * MATRIX_N, sums[i], SCORE_PITCH);
      }
    }
  }
}

// results += a panel of weights by a panel of columns, or this subgroup's part of them.
fn add_weighted(results: ptr<function, Results>, own: u32, weights_panel: u32, panel: u32) {
  let left_panel = weights_panel % (STRIPS * WEIGHT_KINDS);
  let right_panel = panel % 2u;
  #unroll for (var part = 0u; part < PARTS; part++) {
    if PARTS == 1u || own % 2u == part {
      #unroll for (var s = 0u; s < STEPS; s++) {
        var left = array<Left, MATRICES>();
        #unroll for (var i = 0u; i < MATRICES; i++) {
          left[i] = subgroupMatrixLoad<Left, row_major>(
            &weights[left_panel], i * MATRIX_M * SCALED_PITCH + s * MATRIX_K, SCALED_PITCH);
        }
        #unroll for (var c = 0u; c < ACROSS; c++) {
          let right = subgroupMatrixLoad<Right, row_major>(
            &columns[right_panel], s * MATRIX_K * PITCH + part * (ACROSS * MATRIX_N) + c * MATRIX_N, PITCH);
          #unroll for (var i = 0u; i < MATRICES; i++) {
            (*results)[i][c] = subgroupMatrixMultiplyAccumulate(left[i], right, (*results)[i][c]);
          }
        }
      }
    }
  }
}

fn put_sums(sheet: u32, column: u32, sums: Sums) {
  subgroupMatrixStore<row_major>(&scores[sheet % SHEETS], column, sums, SCORE_PITCH);
}
#elif OF_PRODUCTS
// Of 03_matmul_matrix.wgsl: a panel for the subgroups that share it.
var<workgroup> tile_a: array<array<f16, LINES_A * ROW_A>, PANELS_A>;
var<workgroup> tile_b: array<array<f16, LINES_B * ROW_B>, PANELS_B>;
var<workgroup> results: array<array<f32, MATRIX_M * RESULT_PITCH>, SUBGROUPS>;

// The cells of what was loaded.
fn cells_a(fetched: FetchedA) -> Cells {
#if A_F16
  return cells_of_f16(fetched);
#else
  return cells_of(elements_a(fetched));
#endif
}

// Elements 4 · q to 4 · q + 3 of a unit.
fn cells_b(fetched: FetchedB, q: u32) -> Cells {
#if B_F16
  return cells_of_f16(fetched);
#else
  return cells_of(quad_b(fetched, q));
#endif
}

// Adds the product of a tile's rows and columns of a subgroup.
fn multiply_tiles(group: u32, sums: ptr<function, array<array<Sums, MATRICES_N>, MATRICES_M>>) {
  let a = group / GROUPS_N % PANELS_A;
  let b = group % GROUPS_N;
  #unroll for (var s = 0u; s < STEPS; s++) {
    #unroll for (var i = 0u; i < MATRICES_M; i++) {
#if OVER_TOKENS
      let left_#i = subgroupMatrixLoad<Left, col_major>(&tile_a[a], s * MATRIX_K * ROW_A + i * MATRIX_M, ROW_A);
#else
      let left_#i = subgroupMatrixLoad<Left, row_major>(&tile_a[a], i * MATRIX_M * ROW_A + s * MATRIX_K, ROW_A);
#endif
    }
    #unroll for (var j = 0u; j < MATRICES_N; j++) {
#if DOTS
      let right_#j = subgroupMatrixLoad<Right, col_major>(&tile_b[b], j * MATRIX_N * ROW_B + s * MATRIX_K, ROW_B);
#else
      let right_#j = subgroupMatrixLoad<Right, row_major>(&tile_b[b], s * MATRIX_K * ROW_B + j * MATRIX_N, ROW_B);
#endif
      #unroll for (var i = 0u; i < MATRICES_M; i++) {
        (*sums)[i][j] = subgroupMatrixMultiplyAccumulate(left_#i, right_#j, (*sums)[i][j]);
      }
    }
  }
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
  let panel_a = line_a / LINES_A + four_a / UNITS_A;
  let place_a = line_a % LINES_A * ROW_A + four_a % UNITS_A * 4u;
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
  let unit_b = own % ACROSS_B;
  let panel_b = line_b / LINES_B + unit_b / UNITS_B;
  let place_b = line_b % LINES_B * ROW_B + unit_b % UNITS_B * UNIT_B;
  #unroll for (var i = 0u; i < LOADS_B; i++) {
    let panel = panel_b + i * APART_B / LINES_B;
    #unroll for (var q = 0u; q < QUADS_B; q++) {
      let cells = cells_b((*next_b)[i], q);
      let at = place_b + i * APART_B % LINES_B * ROW_B + q * 4u;
      tile_b[panel][at] = cells.x;
      tile_b[panel][at + 1u] = cells.y;
      tile_b[panel][at + 2u] = cells.z;
      tile_b[panel][at + 3u] = cells.w;
    }
  }
}

fn put_sums(group: u32, sums: Sums) {
  subgroupMatrixStore<row_major>(&results[group % SUBGROUPS], 0u, sums, RESULT_PITCH);
}

// What a matrix of results, its first one at `at` of `c`, is added to; and how it is stored. A browser refuses a kernel
// with these calls if a buffer is smaller than one matrix, even if they are never reached: DIRECT says that none is.
fn start(at: u32) -> Sums {
#if DIRECT_RESIDUAL
  return subgroupMatrixLoad<Sums, row_major>(&residual, at, C_STRIDE);
#else
#if DIRECT_ADDS
  if adds(step.accumulate) {
    return subgroupMatrixLoad<Sums, row_major>(&c, at, C_STRIDE);
  }
#endif
  return Sums();
#endif
}

fn store_sums(at: u32, sums: Sums) {
#if DIRECT
  subgroupMatrixStore<row_major>(&c, at, sums, C_STRIDE);
#endif
}
#endif
#endif
