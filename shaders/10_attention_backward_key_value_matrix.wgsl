// attention_backward_key_value: d_key and d_value of grouped-query attention, on matrices that a subgroup holds
// (lib/attention/backward_matrix.wgsl, with the bindings).
//
// Rows are keys and values, columns queries and the gradients of their outputs. Of a pair of subgroups one holds keys
// and sums d_key, the other values and d_value. Grid: x over key tiles of BQ, y over owners (HEADS / MEMBERS), dealt out
// by `assigned`.
#import lib/attention/backward_matrix

alias Known = array<Row, 1>;

fn row_cells(kind: u32, row: u32, head: u32, v: u32) -> Cells {
  return load_key_or_value(kind, row, head / (HEADS / KV_HEADS), v);
}

fn column_cells(kind: u32, column: u32, head: u32, v: u32) -> Cells {
  if kind == 0u {
    return load_query(column, head, v);
  }
  return load_d_output(column, head, v);
}

// The columns that see some row: queries.
fn seen_columns(first_row: u32, last_row: u32) -> vec2<u32> {
  return vec2(first_query(0u, first_row) / BK * BK, end_query(0u, last_row));
}

fn sees_whole(first_row: u32, last_row: u32, c0: u32, end: u32) -> bool {
  let last_query = c0 + BK - 1u;
  return last_query < end && first_key(0u, min(last_query, end - 1u)) <= first_row && last_row < end_key(0u, c0);
}

fn know_rows(invocation: u32, first_row: u32, last_row: u32, head: u32, known: ptr<function, Known>) {}

fn know_columns(invocation: u32, c0: u32, end: u32, head: u32, known: ptr<function, Known>) {
  let query = c0 + invocation % BK;
  (*known)[0] = known_of(min(query, end - 1u), head);
  (*known)[0].count = select(0u, (*known)[0].count, query < end);
}

// Weights of four keys that are eight apart, as blocks of random words are.
fn weigh(invocation: u32, first_row: u32, c0: u32, head: u32, whole: bool, known: ptr<function, Known>) {
  let lane = invocation % WORKGROUP;
  let column = lane % BK;
  #unroll for (var t = 0u; t < TURNS; t++) {
    let unit = (lane + t * WORKGROUP) / BK;
    let first = unit / 8u * 32u + unit % 8u;
    let words = words_of(head, c0 + column, first_row + first);
    #unroll for (var j = 0u; j < FOUR; j++) {
      let row = first + j * 8u;
      let key = first_row + row;
      let sheet = row / STRIP * (2u * MATRICES) + row % STRIP / MATRIX_M;
      let place = row % MATRIX_M * SCORE_PITCH + column;
      let score = scores[sheet][place];
      let slope = scores[sheet + MATRICES][place];
      let shown = whole | ((key - (*known)[0].first) < (*known)[0].count);
      let weight = weights_of(score, slope, kept_of(words, key), shown, (*known)[0]);
      put_weight(row / STRIP * 2u, row, column, weight.y);
      put_weight(row / STRIP * 2u + 1u, row, column, weight.x);
    }
  }
}

fn store(row: u32, owner: u32, kind: u32, column: u32, left: vec4<f32>, right: vec4<f32>) {
  let at = row * D_STRIDE + owner * HEAD_DIM + column;
  if kind == 0u {
    put_halves((at + D_KEY_OFFSET) / 4u, rotated_back(row, column, left * D_SCORE_UNIT, right * D_SCORE_UNIT));
  } else {
    put_halves((at + D_VALUE_OFFSET) / 4u, array(left / WEIGHT_UNIT, right / WEIGHT_UNIT));
  }
}
