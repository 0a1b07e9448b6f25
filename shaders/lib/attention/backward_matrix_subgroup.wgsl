// The products of lib/attention/backward_matrix.wgsl on matrices that a subgroup holds. Every place in a panel is a
// constant: of others a browser checks at run time whether they are within the array.
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
