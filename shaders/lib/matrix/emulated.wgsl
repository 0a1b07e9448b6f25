// What lib/matrix/subgroup.wgsl and matrix_step do, in plain WGSL: LANES neighbouring invocations stand in for a
// subgroup, and the sums of a matrix are divided among them. For tests on devices without matrices.
alias Sums = array<f32, MATRIX_M * MATRIX_N / LANES>;

var<private> matrix_lane: u32;
var<workgroup> tile_a: array<array<vec2<u32>, LINES_A * ROW_A / 4u>, PANELS_A>;
var<workgroup> tile_b: array<array<vec2<u32>, LINES_B * ROW_B / 4u>, PANELS_B>;
var<workgroup> results: array<array<f32, MATRIX_M * RESULT_PITCH>, SUBGROUPS>;

fn own_group(lane: u32) -> u32 {
  matrix_lane = lane % LANES;
  return lane / LANES;
}

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

fn half_of(four: vec2<u32>, i: u32) -> f32 {
  let two = unpack2x16float(select(four.x, four.y, i % 4u >= 2u));
  return select(two.x, two.y, i % 2u == 1u);
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
          let x = select(row * ROW_A + k, k * ROW_A + row, COLUMNS_A);
          let y = select(column * ROW_B + k, k * ROW_B + column, COLUMNS_B);
          sum += half_of(tile_a[a][x / 4u], x) * half_of(tile_b[b][y / 4u], y);
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
