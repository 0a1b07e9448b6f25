// matvec_rows_forward: C = A·Bᵀ for a few rows of A, B stored [N · EACH, K]: the linear layer of several decoded
// tokens. Each number of B is read once for COLUMNS rows of A.
//
//   0 a      read   f32 [rows, K]
//   1 b      read   f32 [N · EACH, K]; or packed (lib/weights.wgsl)
//
// and then what 03_matvec.wgsl binds. What it imports says what A is (a, or its RMSNorm), which EACH rows
// of B belong to a result, and what becomes of the sums.
//
// LANES invocations, a unit, share PRODUCTS rows of B and COLUMNS rows of A, neighbours reading neighbouring
// vectors, UNROLLED of each row of B on their way together. Rows past an end repeat the last one, and are not
// stored. How a sum is put together depends neither on COLUMNS nor on the rows.
// Grid: UNIT_GROUPS workgroups for the rows of B, then the same for the next COLUMNS rows of A.
#import lib/flat
#import lib/matvec_rows/products
#import lib/matvec/result
#import lib/matvec_rows/meet

#operand c: array<f32>  // write  f32, as lib/matvec/result.wgsl says

const UNIT_RESULTS: u32 = PRODUCTS / EACH;
const ROW_UNITS: u32 = WORKGROUP / LANES;
const UNIT_GROUPS: u32 = (N + UNIT_RESULTS * ROW_UNITS - 1u) / (UNIT_RESULTS * ROW_UNITS);

fn run(lane: u32, workgroup: vec3<u32>, workgroups: vec3<u32>) {
  let group = flat_workgroup(workgroup, workgroups);
  let row0 = group / UNIT_GROUPS * COLUMNS;
  let place = unit_place(lane);
  let first = (group % UNIT_GROUPS * ROW_UNITS + place.x) * UNIT_RESULTS;
  var sums = array<f32, SUMS>();
  for (var turn = 0u; turn < TURNS; turn += UNROLLED) {
    add_products(&sums, first, row0, turn * LANES + place.y);
  }
  meet(lane, place, &sums);
  for (var i = place.y; i < COLUMNS * UNIT_RESULTS; i += LANES) {
    let column = i / UNIT_RESULTS;
    let row = row0 + column;
    let n = first + i % UNIT_RESULTS;
    if row < row_count() && n < N {
      let at = i % UNIT_RESULTS * EACH * COLUMNS + column;
      let pair = vec2(total(place.x, at), total(place.x, at + (EACH - 1u) * COLUMNS));
      let squares = total(place.x, (SUM_ROWS - 1u) * COLUMNS + column);
      store(row, n, pair * norm_scale(squares), before(row, n));
    }
  }
}
