// low_rank_forward, low_rank_backward: rows times matrices of low rank, those of several modules of an adapter.
//
// A module multiplies DEPTHS columns of a row, from column FROM on, with its matrix: with its rows (TRANSPOSED) or its
// columns. That gives WIDTHS columns of the result, from column TO on. With more TERMS than one, the products of all modules
// are added up in the same columns. An invocation has 4×4 results. SHARED_BY of them share their sums, whose parts meet in
// workgroup memory.
//
// Grid: SHARED_BY invocations for each 4×4 results, columns fastest.
// Workgroup memory: where sums are shared, 64 bytes an invocation.
#import lib/step
#import lib/flat
#import lib/write_mode

#binding step: Step  // uniform

// rows: f32 or f16 [tokens, ROW]                               read
// weights: f32 [WIDTHS, DEPTHS], or [DEPTHS, WIDTHS], from element AT on  read
// result: f32 [tokens, RESULT]                                 read_write  by WRITE_MODE, FACTOR · sums
#if BY_FOUR
#if ROWS_F16
#binding rows: array<vec2<u32>>

// Elements column … column + 3 of a row; `end` is where the module's columns end.
fn fetch_rows(row: u32, column: u32, end: u32) -> vec4<f32> {
  let halves = rows[(row * ROW + column) / 4u];
  return vec4(unpack2x16float(halves.x), unpack2x16float(halves.y));
}
#else
#binding rows: array<vec4<f32>>

fn fetch_rows(row: u32, column: u32, end: u32) -> vec4<f32> {
  return rows[(row * ROW + column) / 4u];
}
#endif
#binding weights: array<vec4<f32>>
#binding result: array<vec4<f32>>

// Elements column … column + 3 of a row of a matrix that begins at `at`.
fn fetch_weights(at: u32, row: u32, column: u32, end: u32) -> vec4<f32> {
  return weights[(at + row * MATRIX_ROW + column) / 4u];
}

fn put_result(row: u32, column: u32, end: u32, value: vec4<f32>) {
  let i = (row * RESULT + column) / 4u;
  if adds(step.accumulate) {
    result[i] += value;
  } else {
    result[i] = value;
  }
}
#else
#binding rows: array<f32>
#binding weights: array<f32>
#binding result: array<f32>

fn fetch_rows(row: u32, column: u32, end: u32) -> vec4<f32> {
  var value = vec4<f32>();
  for (var e = 0u; e < min(4u, end - column); e++) {
    value[e] = rows[row * ROW + column + e];
  }
  return value;
}

fn fetch_weights(at: u32, row: u32, column: u32, end: u32) -> vec4<f32> {
  var value = vec4<f32>();
  for (var e = 0u; e < min(4u, end - column); e++) {
    value[e] = weights[at + row * MATRIX_ROW + column + e];
  }
  return value;
}

fn put_result(row: u32, column: u32, end: u32, value: vec4<f32>) {
  for (var e = 0u; e < min(4u, end - column); e++) {
    let i = row * RESULT + column + e;
    if adds(step.accumulate) {
      result[i] += value[e];
    } else {
      result[i] = value[e];
    }
  }
}
#endif

const GROUP_BLOCKS: u32 = WORKGROUP / SHARED_BY;

// A block's first row, and its first column among those of its place.
struct Block {
  row: u32,
  column: u32,
  // Columns of the result: where the place begins, and how many it has.
  to: u32,
  width: u32,
  // The first of the place's terms.
  term: u32,
}

fn block_at(index: u32) -> Block {
  let four = index % RESULT_FOURS;
  var block = Block(index / RESULT_FOURS * 4u, four * 4u, TO[0], WIDTHS[0], 0u);
  #unroll for (var p = 1u; p < PLACES; p++) {
    if four >= FIRSTS[p] {
      block = Block(block.row, (four - FIRSTS[p]) * 4u, TO[p], WIDTHS[p], p);
    }
  }
  return block;
}

// A term's first column of the rows, how many it has, and where its matrix begins.
fn term_at(index: u32) -> vec3<u32> {
  var term = vec3(FROM[0], DEPTHS[0], AT[0]);
  #unroll for (var t = 1u; t < ALL_TERMS; t++) {
    if index == t {
      term = vec3(FROM[t], DEPTHS[t], AT[t]);
    }
  }
  return term;
}

// Adds one term's part of the block's sums: every SHARED_BY-th four of its columns.
fn add_term(block: Block, term: vec3<u32>, slice: u32, sums: ptr<function, array<vec4<f32>, 4>>) {
  let last = step.tokens - 1u;
  let end = term.x + term.y;
  for (var k = slice * 4u; k < term.y; k += SHARED_BY * 4u) {
    #unroll for (var i = 0u; i < 4u; i++) {
      let left_#i = fetch_rows(min(block.row + i, last), term.x + k, end);
    }
#if TRANSPOSED
    #unroll for (var j = 0u; j < 4u; j++) {
      let right_#j = fetch_weights(term.z, min(block.column + j, block.width - 1u), k, term.y);
    }
    #unroll for (var i = 0u; i < 4u; i++) {
      (*sums)[i] += vec4(
        dot(left_#i, right_0), dot(left_#i, right_1), dot(left_#i, right_2), dot(left_#i, right_3));
    }
#else
    #unroll for (var j = 0u; j < 4u; j++) {
      let right_#j = fetch_weights(term.z, min(k + j, term.y - 1u), block.column, block.width);
    }
    #unroll for (var i = 0u; i < 4u; i++) {
      (*sums)[i] += left_#i.x * right_0 + left_#i.y * right_1 + left_#i.z * right_2 + left_#i.w * right_3;
    }
#endif
  }
}

#if SLICED
// Rows of 4×4 results, by row and invocation.
var<workgroup> slice_sums: array<vec4<f32>, 4u * WORKGROUP>;
#endif

fn run(lane: u32, workgroup: vec3<u32>, workgroups: vec3<u32>) {
  let first = flat_workgroup(workgroup, workgroups) * GROUP_BLOCKS;
  // Blocks side by side read the same rows, and neighbours in a matrix that is not transposed.
  let block = block_at(first + lane % GROUP_BLOCKS);
  let slice = lane / GROUP_BLOCKS;
  var sums = array<vec4<f32>, 4>();
  if block.row < step.tokens {
    for (var t = 0u; t < TERMS; t++) {
      add_term(block, term_at(block.term + t), slice, &sums);
    }
  }
#if SLICED
  #unroll for (var i = 0u; i < 4u; i++) {
    slice_sums[i * WORKGROUP + lane] = sums[i];
  }
  workgroupBarrier();
  for (var four = lane; four < 4u * GROUP_BLOCKS; four += WORKGROUP) {
    let own = block_at(first + four / 4u);
    let row = own.row + four % 4u;
    if row < step.tokens {
      var total = vec4<f32>();
      // Each begins with another slice: neighbours read different banks.
      for (var s = 0u; s < SHARED_BY; s++) {
        total += slice_sums[four % 4u * WORKGROUP + (s + four) % SHARED_BY * GROUP_BLOCKS + four / 4u];
      }
      put_result(row, own.to + own.column, own.to + own.width, FACTOR * total);
    }
  }
#else
  #unroll for (var i = 0u; i < 4u; i++) {
    if block.row + i < step.tokens {
      put_result(block.row + i, block.to + block.column, block.to + block.width, FACTOR * sums[i]);
    }
  }
#endif
}
