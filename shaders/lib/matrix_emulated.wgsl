// What lib/matrix.wgsl does, in plain WGSL: LANES neighbouring invocations stand in for a subgroup, and the sums of a matrix
// are divided among them. For tests on devices without matrices.
alias Sums = array<f32, MATRIX_M * MATRIX_N / LANES>;
// Four elements of a tile.
alias Cells = vec2<u32>;

var<private> matrix_lane: u32;

// The subgroup of an invocation.
fn own_group(lane: u32) -> u32 {
  matrix_lane = lane % LANES;
  return lane / LANES;
}

fn cells_of(x: vec4<f32>) -> Cells {
  return vec2(pack2x16float(x.xy), pack2x16float(x.zw));
}

fn cells_of_f16(x: vec2<u32>) -> Cells {
  return x;
}

// Element `i` of the four in a tile's cells.
fn element_of(four: Cells, i: u32) -> f32 {
  let two = unpack2x16float(select(four.x, four.y, i % 4u >= 2u));
  return select(two.x, two.y, i % 2u == 1u);
}

#if OF_FORWARD
var<workgroup> query_tile: array<array<Cells, QUERY_CELLS / 4u>, ROW_PANELS>;
var<workgroup> key_tile: array<Cells, COLUMN_CELLS / 4u>;
var<workgroup> value_tile: array<Cells, COLUMN_CELLS / 4u>;
var<workgroup> weight_tile: array<array<Cells, WEIGHT_CELLS / 4u>, ROW_PANELS>;

fn put_queries(line: u32, four: u32, cells: Cells) {
  let panel = line % BQ / ROWS;
  let at = line % ROWS * HEAD_PITCH + four % VECTORS * 4u;
  query_tile[panel][at / 4u] = cells;
}

fn put_keys(line: u32, four: u32, cells: Cells) {
  let at = line % BK * HEAD_PITCH + four % VECTORS * 4u;
  key_tile[at / 4u] = cells;
}

fn put_values(line: u32, four: u32, cells: Cells) {
  let at = line % BK * HEAD_PITCH + four % VECTORS * 4u;
  value_tile[at / 4u] = cells;
}

fn put_weights(line: u32, four: u32, cells: Cells) {
  let panel = line % BQ / ROWS;
  let at = line % ROWS * WEIGHTS_PITCH + four % (BK / 4u) * 4u;
  weight_tile[panel][at / 4u] = cells;
}

fn multiply_keys(rows: u32, sums: ptr<function, Products>) {
  let panel = rows % ROW_PANELS;
  for (var i = 0u; i < ROWS / MATRIX_M; i++) {
    for (var j = 0u; j < BK / MATRIX_N; j++) {
      for (var share = 0u; share < MATRIX_M * MATRIX_N / LANES; share++) {
        let result = matrix_lane + share * LANES;
        let row = i * MATRIX_M + result / MATRIX_N;
        let column = j * MATRIX_N + result % MATRIX_N;
        var sum = 0.0;
        for (var k = 0u; k < HEAD_DIM; k++) {
          let x = row * HEAD_PITCH + k;
          let y = column * HEAD_PITCH + k;
          sum += element_of(query_tile[panel][x / 4u], x) * element_of(key_tile[y / 4u], y);
        }
        (*sums)[i][j][share] += sum;
      }
    }
  }
}

fn add_values(rows: u32, results: ptr<function, Results>) {
  let panel = rows % ROW_PANELS;
  for (var i = 0u; i < ROWS / MATRIX_M; i++) {
    for (var j = 0u; j < HEAD_DIM / MATRIX_N; j++) {
      for (var share = 0u; share < MATRIX_M * MATRIX_N / LANES; share++) {
        let result = matrix_lane + share * LANES;
        let row = i * MATRIX_M + result / MATRIX_N;
        let column = j * MATRIX_N + result % MATRIX_N;
        var sum = 0.0;
        for (var k = 0u; k < BK; k++) {
          let x = row * WEIGHTS_PITCH + k;
          let y = k * HEAD_PITCH + column;
          sum += element_of(weight_tile[panel][x / 4u], x) * element_of(value_tile[y / 4u], y);
        }
        (*results)[i][j][share] += sum;
      }
    }
  }
}

fn store_products(rows: u32, sums: ptr<function, Products>) {
  let panel = rows % ROW_PANELS;
  for (var i = 0u; i < ROWS / MATRIX_M; i++) {
    for (var j = 0u; j < BK / MATRIX_N; j++) {
      for (var share = 0u; share < MATRIX_M * MATRIX_N / LANES; share++) {
        let result = matrix_lane + share * LANES;
        let row = i * MATRIX_M + result / MATRIX_N;
        scores[panel][row * SCORES_PITCH + j * MATRIX_N + result % MATRIX_N] = (*sums)[i][j][share];
      }
    }
  }
}

fn store_results(rows: u32, strip: u32, results: ptr<function, Results>) {
  let panel = rows % ROW_PANELS;
  for (var i = 0u; i < ROWS / MATRIX_M; i++) {
    for (var j = 0u; j < STRIP_MATRICES; j++) {
      for (var share = 0u; share < MATRIX_M * MATRIX_N / LANES; share++) {
        let result = matrix_lane + share * LANES;
        let at = (i * MATRIX_M + result / MATRIX_N) * SCORES_PITCH + j * MATRIX_N + result % MATRIX_N;
        scores[panel][at] = (*results)[i][strip * STRIP_MATRICES + j][share];
      }
    }
  }
}

fn load_results(rows: u32, strip: u32, results: ptr<function, Results>) {
  let panel = rows % ROW_PANELS;
  for (var i = 0u; i < ROWS / MATRIX_M; i++) {
    for (var j = 0u; j < STRIP_MATRICES; j++) {
      for (var share = 0u; share < MATRIX_M * MATRIX_N / LANES; share++) {
        let result = matrix_lane + share * LANES;
        let at = (i * MATRIX_M + result / MATRIX_N) * SCORES_PITCH + j * MATRIX_N + result % MATRIX_N;
        (*results)[i][strip * STRIP_MATRICES + j][share] = scores[panel][at];
      }
    }
  }
}

fn pair_place(lane: u32) -> u32 {
  return lane;
}

// Through the sheet of scores: its place `at` and the next are the pair's.
fn of_pair(panel: u32, at: u32, x: f32) -> f32 {
  scores[panel][at + matrix_lane % 2u] = x;
  workgroupBarrier();
  return max(scores[panel][at], scores[panel][at + 1u]);
}
#elif OF_BACKWARD
// An invocation has all rows that its neighbours hold too, and a part of their sums.
alias Held = array<Cells, STRIP * VECTORS>;
alias Results = array<array<Sums, ACROSS>, MATRICES>;

var<workgroup> columns: array<array<Cells, BK * PITCH / 4u>, 2>;
var<workgroup> scores: array<array<f32, MATRIX_M * SCORE_PITCH>, SHEETS>;
// Two elements to a word, which two invocations write.
var<workgroup> weights: array<array<atomic<u32>, STRIP * SCALED_PITCH / 2u>, STRIPS * WEIGHT_KINDS>;

fn put_cells(panel: u32, line: u32, v: u32, cells: Cells) {
  columns[panel][line * (PITCH / 4u) + v] = cells;
}

fn put_weight(panel: u32, row: u32, column: u32, x: f32) {
  let at = row % STRIP * SCALED_PITCH + column;
  let shift = at % 2u * 16u;
  atomicAnd(&weights[panel][at / 2u], ~(0xffffu << shift));
  atomicOr(&weights[panel][at / 2u], (pack2x16float(vec2(x, 0.0)) & 0xffffu) << shift);
}

fn hold(held: ptr<function, Held>, panel: u32) {
  for (var i = 0u; i < STRIP * VECTORS; i++) {
    (*held)[i] = columns[panel][i / VECTORS * (PITCH / 4u) + i % VECTORS];
  }
}

fn multiply_columns(held: ptr<function, Held>, own: u32, panel: u32) {
  #unroll for (var sheet = 0u; sheet < MATRICES; sheet++) {
    for (var result = matrix_lane; result < MATRIX_M * BK; result += LANES) {
      let row = result / BK;
      let column = result % BK;
      var sum = 0.0;
      for (var v = 0u; v < VECTORS; v++) {
        let x = (*held)[(sheet * MATRIX_M + row) * VECTORS + v];
        let y = columns[panel][column * (PITCH / 4u) + v];
        sum += dot(unpack2x16float(x.x), unpack2x16float(y.x)) + dot(unpack2x16float(x.y), unpack2x16float(y.y));
      }
      scores[own * MATRICES + sheet][row * SCORE_PITCH + column] = sum;
    }
  }
}

fn add_weighted(results: ptr<function, Results>, own: u32, weights_panel: u32, panel: u32) {
  #unroll for (var i = 0u; i < MATRICES; i++) {
    #unroll for (var c = 0u; c < ACROSS; c++) {
      for (var share = 0u; share < MATRIX_M * MATRIX_N / LANES; share++) {
        let result = matrix_lane + share * LANES;
        let row = i * MATRIX_M + result / MATRIX_N;
        let column = (own % PARTS * ACROSS + c) * MATRIX_N + result % MATRIX_N;
        var sum = 0.0;
        #unroll for (var k = 0u; k < BK; k++) {
          let at = row * SCALED_PITCH + k;
          let two = unpack2x16float(atomicLoad(&weights[weights_panel][at / 2u]));
          sum += select(two.x, two.y, at % 2u == 1u) * element_of(columns[panel][k * (PITCH / 4u) + column / 4u], column);
        }
        (*results)[i][c][share] += sum;
      }
    }
  }
}

fn put_sums(sheet: u32, column: u32, given: Sums) {
  var sums = given;
  for (var share = 0u; share < MATRIX_M * MATRIX_N / LANES; share++) {
    let result = matrix_lane + share * LANES;
    scores[sheet][result / MATRIX_N * SCORE_PITCH + column + result % MATRIX_N] = sums[share];
  }
}
#elif OF_PRODUCTS
var<workgroup> tile_a: array<array<Cells, LINES_A * ROW_A / 4u>, PANELS_A>;
var<workgroup> tile_b: array<array<Cells, LINES_B * ROW_B / 4u>, PANELS_B>;
var<workgroup> results: array<array<f32, MATRIX_M * RESULT_PITCH>, SUBGROUPS>;

fn put_tiles(
    lane: u32,
    next_a: ptr<function, array<FetchedA, LOADS_A>>,
    next_b: ptr<function, array<FetchedB, LOADS_B>>) {
  #unroll for (var i = 0u; i < LOADS_A; i++) {
    let line = lane / ACROSS_A + i * APART_A;
    let four = lane % ACROSS_A;
    let value = elements_a((*next_a)[i]);
    let at = line % LINES_A * ROW_A / 4u + four % FOURS_A;
    let halves = vec2(pack2x16float(value.xy), pack2x16float(value.zw));
    tile_a[line / LINES_A + four / FOURS_A][at] = halves;
  }
  #unroll for (var i = 0u; i < LOADS_B; i++) {
    let line = lane / ACROSS_B + i * APART_B;
    let four = lane % ACROSS_B;
    let value = elements_b((*next_b)[i]);
    let at = line % LINES_B * ROW_B / 4u + four % FOURS_B;
    let halves = vec2(pack2x16float(value.xy), pack2x16float(value.zw));
    tile_b[line / LINES_B + four / FOURS_B][at] = halves;
  }
}

// Adds the product of a tile's rows and columns of a subgroup.
fn multiply_tiles(group: u32, sums: ptr<function, array<array<Sums, MATRICES_N>, MATRICES_M>>) {
  let a = group / GROUPS_N;
  let b = group % GROUPS_N;
  #unroll for (var i = 0u; i < MATRICES_M; i++) {
    #unroll for (var j = 0u; j < MATRICES_N; j++) {
      for (var share = 0u; share < MATRIX_M * MATRIX_N / LANES; share++) {
        let result = matrix_lane + share * LANES;
        let row = i * MATRIX_M + result / MATRIX_N;
        let column = j * MATRIX_N + result % MATRIX_N;
        var sum = 0.0;
        #unroll for (var k = 0u; k < BK; k++) {
          let x = select(row * ROW_A + k, k * ROW_A + row, OVER_TOKENS);
          let y = select(k * ROW_B + column, column * ROW_B + k, DOTS);
          sum += element_of(tile_a[a][x / 4u], x) * element_of(tile_b[b][y / 4u], y);
        }
        (*sums)[i][j][share] += sum;
      }
    }
  }
}

fn put_sums(group: u32, given: Sums) {
  var sums = given;
  for (var share = 0u; share < MATRIX_M * MATRIX_N / LANES; share++) {
    let result = matrix_lane + share * LANES;
    results[group][result / MATRIX_N * RESULT_PITCH + result % MATRIX_N] = sums[share];
  }
}

#if F16
// No matrix of sums is stored as it is.
fn start(at: u32) -> Sums {
  return Sums();
}

fn store_sums(at: u32, sums: Sums) {}
#else
// What a matrix of results, its first one at `at` of `c`, is added to.
fn start(at: u32) -> Sums {
  var sums = Sums();
  for (var share = 0u; share < MATRIX_M * MATRIX_N / LANES; share++) {
    let result = matrix_lane + share * LANES;
    sums[share] = previous(at + result / MATRIX_N * C_STRIDE + result % MATRIX_N);
  }
  return sums;
}

fn store_sums(at: u32, given: Sums) {
  var sums = given;
  for (var share = 0u; share < MATRIX_M * MATRIX_N / LANES; share++) {
    let result = matrix_lane + share * LANES;
    c[at + result / MATRIX_N * C_STRIDE + result % MATRIX_N] = sums[share];
  }
}
#endif
#endif
