// What lib/matrix.wgsl does, in plain WGSL: LANES neighbouring invocations stand in for a subgroup, and the sums of a matrix
// are divided among them. For tests on devices without matrices.
const LANE_SHARES: u32 = MATRIX_M * MATRIX_N / LANES;
alias Sums = array<f32, LANE_SHARES>;
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

// Row and column, in a matrix, of the invocation's sum number `share`.
fn share_at(share: u32) -> vec2<u32> {
  let result = matrix_lane + share * LANES;
  return vec2(result / MATRIX_N, result % MATRIX_N);
}

// One of the sums that an invocation has of matrices side by side, ACROSS of them in a row: which matrix, which of its
// sums, and where that lies in all of them.
struct Share {
  i: u32,
  j: u32,
  share: u32,
  row: u32,
  column: u32,
}

fn share_of(n: u32, across: u32) -> Share {
  let matrix = n / LANE_SHARES;
  let i = matrix / across;
  let j = matrix % across;
  let at = share_at(n % LANE_SHARES);
  return Share(i, j, n % LANE_SHARES, i * MATRIX_M + at.x, j * MATRIX_N + at.y);
}

#if OF_FORWARD
const KEY_SHARES: u32 = ROWS / MATRIX_M * (PART / MATRIX_N) * LANE_SHARES;
const VALUE_SHARES: u32 = ROWS / MATRIX_M * (HEAD_DIM / MATRIX_N) * LANE_SHARES;
const STRIP_SHARES: u32 = ROWS / MATRIX_M * STRIP_MATRICES * LANE_SHARES;

var<workgroup> query_tile: array<array<Cells, QUERY_CELLS / 4u>, ROW_PANELS>;
var<workgroup> key_tile: array<array<Cells, COLUMN_CELLS / 4u>, KEY_PARTS>;
var<workgroup> value_tile: array<array<Cells, COLUMN_CELLS / 4u>, KEY_PARTS>;
var<workgroup> weight_tile: array<array<Cells, WEIGHT_CELLS / 4u>, PANELS>;

fn put_queries(line: u32, four: u32, cells: Cells) {
  query_tile[line % BQ / ROWS][(line % ROWS * HEAD_PITCH + four % VECTORS * 4u) / 4u] = cells;
}

fn put_keys(line: u32, four: u32, cells: Cells) {
  key_tile[line % BK / PART][(line % PART * HEAD_PITCH + four % VECTORS * 4u) / 4u] = cells;
}

fn put_values(line: u32, four: u32, cells: Cells) {
  value_tile[line % BK / PART][(line % PART * HEAD_PITCH + four % VECTORS * 4u) / 4u] = cells;
}

fn put_weights(line: u32, four: u32, cells: Cells) {
  weight_tile[line / ROWS % PANELS][(line % ROWS * WEIGHTS_PITCH + four % (PART / 4u) * 4u) / 4u] = cells;
}

fn multiply_keys(own: u32, sums: ptr<function, Products>) {
  let panel = own % ROW_PANELS;
  let part = own / ROW_PANELS % KEY_PARTS;
  for (var n = 0u; n < KEY_SHARES; n++) {
    let at = share_of(n, PART / MATRIX_N);
    var sum = 0.0;
    for (var k = 0u; k < HEAD_DIM; k++) {
      let x = at.row * HEAD_PITCH + k;
      let y = at.column * HEAD_PITCH + k;
      sum += element_of(query_tile[panel][x / 4u], x) * element_of(key_tile[part][y / 4u], y);
    }
    (*sums)[at.i][at.j][at.share] += sum;
  }
}

fn add_values(own: u32, results: ptr<function, Results>) {
  let panel = own % PANELS;
  let part = own / ROW_PANELS % KEY_PARTS;
  for (var n = 0u; n < VALUE_SHARES; n++) {
    let at = share_of(n, HEAD_DIM / MATRIX_N);
    var sum = 0.0;
    for (var k = 0u; k < PART; k++) {
      let x = at.row * WEIGHTS_PITCH + k;
      let y = k * HEAD_PITCH + at.column;
      sum += element_of(weight_tile[panel][x / 4u], x) * element_of(value_tile[part][y / 4u], y);
    }
    (*results)[at.i][at.j][at.share] += sum;
  }
}

fn store_products(own: u32, sums: ptr<function, Products>) {
  for (var n = 0u; n < KEY_SHARES; n++) {
    let at = share_of(n, PART / MATRIX_N);
    scores[own % PANELS][at.row * SCORES_PITCH + at.column] = (*sums)[at.i][at.j][at.share];
  }
}

fn store_results(own: u32, strip: u32, results: ptr<function, Results>) {
  for (var n = 0u; n < STRIP_SHARES; n++) {
    let at = share_of(n, STRIP_MATRICES);
    scores[own % PANELS][at.row * SCORES_PITCH + at.column] = (*results)[at.i][strip * STRIP_MATRICES + at.j][at.share];
  }
}

fn load_results(own: u32, strip: u32, results: ptr<function, Results>) {
  for (var n = 0u; n < STRIP_SHARES; n++) {
    let at = share_of(n, STRIP_MATRICES);
    (*results)[at.i][strip * STRIP_MATRICES + at.j][at.share] = scores[own % PANELS][at.row * SCORES_PITCH + at.column];
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
  for (var n = 0u; n < MATRICES * ACROSS * LANE_SHARES; n++) {
    let at = share_of(n, ACROSS);
    let column = own % PARTS * ACROSS * MATRIX_N + at.column;
    var sum = 0.0;
    for (var k = 0u; k < BK; k++) {
      let x = at.row * SCALED_PITCH + k;
      let two = unpack2x16float(atomicLoad(&weights[weights_panel][x / 2u]));
      sum += select(two.x, two.y, x % 2u == 1u) * element_of(columns[panel][k * (PITCH / 4u) + column / 4u], column);
    }
    (*results)[at.i][at.j][at.share] += sum;
  }
}

fn put_sums(sheet: u32, column: u32, given: Sums) {
  var sums = given;
  for (var share = 0u; share < LANE_SHARES; share++) {
    let at = share_at(share);
    scores[sheet][at.x * SCORE_PITCH + column + at.y] = sums[share];
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
    let at = line % LINES_A * ROW_A / 4u + four % UNITS_A;
    tile_a[line / LINES_A + four / UNITS_A][at] = cells_of(value);
  }
  #unroll for (var i = 0u; i < LOADS_B; i++) {
    let line = lane / ACROSS_B + i * APART_B;
    let unit = lane % ACROSS_B;
    let at = (line % LINES_B * ROW_B + unit % UNITS_B * UNIT_B) / 4u;
    for (var q = 0u; q < QUADS_B; q++) {
      tile_b[line / LINES_B + unit / UNITS_B][at + q] = cells_of(quad_b((*next_b)[i], q));
    }
  }
}

// Adds the product of a tile's rows and columns of a subgroup.
fn multiply_tiles(group: u32, sums: ptr<function, array<array<Sums, MATRICES_N>, MATRICES_M>>) {
  let a = group / GROUPS_N;
  let b = group % GROUPS_N;
  for (var n = 0u; n < MATRICES_M * MATRICES_N * LANE_SHARES; n++) {
    let at = share_of(n, MATRICES_N);
    var sum = 0.0;
    for (var k = 0u; k < BK; k++) {
      let x = select(at.row * ROW_A + k, k * ROW_A + at.row, OVER_TOKENS);
      let y = select(k * ROW_B + at.column, at.column * ROW_B + k, DOTS);
      sum += element_of(tile_a[a][x / 4u], x) * element_of(tile_b[b][y / 4u], y);
    }
    (*sums)[at.i][at.j][at.share] += sum;
  }
}

fn put_sums(group: u32, given: Sums) {
  var sums = given;
  for (var share = 0u; share < LANE_SHARES; share++) {
    let at = share_at(share);
    results[group][at.x * RESULT_PITCH + at.y] = sums[share];
  }
}

#if F16
// No matrix of sums is stored as it is.
fn start(first: u32) -> Sums {
  return Sums();
}

fn store_sums(first: u32, sums: Sums) {}
#else
// What a matrix of results, its first one at `first` of `c`, is added to.
fn start(first: u32) -> Sums {
  var sums = Sums();
  for (var share = 0u; share < LANE_SHARES; share++) {
    let at = share_at(share);
    sums[share] = previous(first + at.x * C_STRIDE + at.y);
  }
  return sums;
}

fn store_sums(first: u32, given: Sums) {
  var sums = given;
  for (var share = 0u; share < LANE_SHARES; share++) {
    let at = share_at(share);
    c[first + at.x * C_STRIDE + at.y] = sums[share];
  }
}
#endif
#endif
