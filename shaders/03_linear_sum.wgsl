// The second stage of a product that was split along K: adds up the parts, in their order.
//
// M is the token dimension, or FIXED_ROWS if that is not 0. N is a multiple of 4. N
// includes a row's padding.
// Grid: an invocation for each four results, columns fastest.
#import lib/step
#import lib/range
#import lib/flat
#import lib/linear/previous
#import lib/stored

#binding parts: array<vec4<f32>>  // read        f32 [SPLITS, PART_ROWS, N]
// c: f32 or f16 [M, N], C_STRIDE elements per row; by WRITE_MODE, or residual, bias or both + sum
#binding c: array<Stored>         // read_write
#binding step: Step               // uniform
#binding range: Range             // uniform     token rows; first column of the slice of `c` in use

fn run(lane: u32, workgroup: vec3<u32>, workgroups: vec3<u32>) {
  let rows = select(range_rows(step.tokens, range), FIXED_ROWS, FIXED_ROWS > 0u);
  let id = flat_id(lane, workgroup, workgroups);
  let row = id / (N / 4u);
  let vector = id % (N / 4u);
  if row < rows {
    var total = parts[id];
    #unroll for (var split = 1u; split < SPLITS; split++) {
      total += parts[split * PART_ROWS * (N / 4u) + id];
    }
    let i = (row * C_STRIDE + C_COLUMNS * range.col0) / 4u + vector;
    c[i] = stored(total + previous(i));
  }
}
