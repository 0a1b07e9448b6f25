// What lib/matrix/subgroup.wgsl does, in plain WGSL: LANES neighbouring invocations stand in for a subgroup. A
// matrix is where it lies, its sums are divided among the invocations. For tests on devices without matrices.
// A place in a tile, and the steps to the next row and the next column.
alias Left = vec3<u32>;
alias Right = vec3<u32>;
alias Sums = array<f32, MATRIX_M * MATRIX_N / LANES>;

var<private> matrix_lane: u32;
var<workgroup> tile_a: array<vec2<u32>, CELLS_A / 4u>;
var<workgroup> tile_b: array<vec2<u32>, CELLS_B / 4u>;
var<workgroup> results: array<f32, GROUPS * RESULT_AREA>;

fn own_group(lane: u32) -> u32 {
  matrix_lane = lane % LANES;
  return lane / LANES;
}

// Rounded to even where it lies halfway between two halves: WGSL lets adapters choose.
fn halves(value: vec4<f32>) -> vec2<u32> {
  let bits = bitcast<vec4<u32>>(value);
  let even = (bits + vec4(0xfffu) + ((bits >> vec4(13u)) & vec4(1u))) & vec4(0xffffe000u);
  let rounded = bitcast<vec4<f32>>(even);
  return vec2(pack2x16float(rounded.xy), pack2x16float(rounded.zw));
}

fn put_cells_a(at: u32, value: vec4<f32>) {
  tile_a[at / 4u] = halves(value);
}

fn put_cells_b(at: u32, value: vec4<f32>) {
  tile_b[at / 4u] = halves(value);
}

fn half_of(four: vec2<u32>, i: u32) -> f32 {
  let two = unpack2x16float(select(four.x, four.y, i % 4u >= 2u));
  return select(two.x, two.y, i % 2u == 1u);
}

fn left_of_rows(at: u32) -> Left {
  return vec3(at, ROW_A, 1u);
}

fn left_of_columns(at: u32) -> Left {
  return vec3(at, 1u, ROW_A);
}

fn right_of_rows(at: u32) -> Right {
  return vec3(at, ROW_B, 1u);
}

fn right_of_columns(at: u32) -> Right {
  return vec3(at, 1u, ROW_B);
}

fn multiply(left: Left, right: Right, before: Sums) -> Sums {
  var sums = before;
  for (var share = 0u; share < MATRIX_M * MATRIX_N / LANES; share++) {
    let i = matrix_lane + share * LANES;
    let row = left.x + i / MATRIX_N * left.y;
    let column = right.x + i % MATRIX_N * right.z;
    for (var k = 0u; k < MATRIX_K; k++) {
      let x = row + k * left.z;
      let y = column + k * right.y;
      sums[share] += half_of(tile_a[x / 4u], x) * half_of(tile_b[y / 4u], y);
    }
  }
  return sums;
}

fn put_sums(at: u32, given: Sums) {
  var sums = given;
  for (var share = 0u; share < MATRIX_M * MATRIX_N / LANES; share++) {
    let i = matrix_lane + share * LANES;
    results[at + i / MATRIX_N * RESULT_PITCH + i % MATRIX_N] = sums[share];
  }
}
