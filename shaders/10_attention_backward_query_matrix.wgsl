// attention_backward_query: d_query of grouped-query attention, on matrices that a subgroup holds
// (lib/attention/backward_matrix.wgsl, with the bindings).
//
// Rows are queries and the gradients of their outputs, columns keys and values. Of d_query each subgroup of a pair sums
// one half of the head. Grid: x over query tiles of BQ, y over heads, dealt out by `assigned`.
#import lib/attention/backward_matrix

alias Known = array<Row, BQ * BK / 4u / WORKGROUP>;

fn row_cells(kind: u32, row: u32, head: u32, v: u32) -> Cells {
  if kind == 0u {
    return load_query(row, head, v);
  }
  return load_d_output(row, head, v);
}

fn column_cells(kind: u32, column: u32, head: u32, v: u32) -> Cells {
  return load_key_or_value(kind, column, head / (HEADS / KV_HEADS), v);
}

// The columns that some row sees: keys.
fn seen_columns(first_row: u32, last_row: u32) -> vec2<u32> {
  return vec2(first_key(0u, first_row) / BK * BK, end_key(0u, last_row));
}

// Whether every row sees every column of a tile.
fn sees_whole(first_row: u32, last_row: u32, c0: u32, end: u32) -> bool {
  return c0 >= first_key(0u, last_row) && c0 + BK <= end_key(0u, first_row);
}

fn know_rows(invocation: u32, first_row: u32, last_row: u32, head: u32, known: ptr<function, Known>) {
  let lane = invocation % WORKGROUP;
  #unroll for (var t = 0u; t < TURNS; t++) {
    let row = (lane + t * WORKGROUP) / (BK / 4u);
    (*known)[t] = known_of(min(first_row + row, last_row), head);
  }
}

fn know_columns(invocation: u32, c0: u32, end: u32, head: u32, known: ptr<function, Known>) {}

// Weights of four keys that are eight apart, as blocks of random words are.
fn weigh(invocation: u32, first_row: u32, c0: u32, head: u32, whole: bool, known: ptr<function, Known>) {
  let lane = invocation % WORKGROUP;
  #unroll for (var t = 0u; t < TURNS; t++) {
    let unit = lane + t * WORKGROUP;
    let row = unit / (BK / 4u);
    let first = unit % (BK / 4u) / 8u * 32u + unit % 8u;
    let sheet = row / STRIP * (2u * MATRICES) + row % STRIP / MATRIX_M;
    let place = row % MATRIX_M * SCORE_PITCH + first;
    let words = words_of(head, first_row + row, c0 + first);
    #unroll for (var j = 0u; j < FOUR; j++) {
      let key = c0 + first + j * 8u;
      let score = scores[sheet][place + j * 8u];
      let slope = scores[sheet + MATRICES][place + j * 8u];
      let shown = whole | ((key - (*known)[t].first) < (*known)[t].count);
      let weight = weights_of(score, slope, kept_of(words, key), shown, (*known)[t]);
      put_weight(row / STRIP, row, first + j * 8u, weight.y);
    }
  }
}

fn store(row: u32, owner: u32, kind: u32, column: u32, left: vec4<f32>, right: vec4<f32>) {
  put_halves((row * STRIDE + owner * HEAD_DIM + column) / 4u, rotated_back(row, column, left * D_SCORE_UNIT, right * D_SCORE_UNIT));
}
