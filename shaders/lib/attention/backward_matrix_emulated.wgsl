// What lib/attention/backward_matrix_subgroup.wgsl does, in plain WGSL: an invocation has all rows that its
// neighbours hold too, and a part of their sums. For tests on devices without matrices.
alias Held = array<vec2<u32>, STRIP * VECTORS>;
alias Results = array<array<Sums, ACROSS>, MATRICES>;

var<workgroup> columns: array<array<vec2<u32>, BK * PITCH / 4u>, 2>;
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
          sum += select(two.x, two.y, at % 2u == 1u) * half_of(columns[panel][k * (PITCH / 4u) + column / 4u], column);
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
