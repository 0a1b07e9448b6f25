// Shared by the two forms of attention_backward_key_value: the columns that it walks along are
// queries and the gradients of their outputs, its weights probabilities and score gradients.

// Kinds of weights.
const PROBABILITIES: u32 = 0u;
const D_SCORES: u32 = 1u;

fn stage_queries(lane: u32, item: u32, first: u32, end: u32, head: u32) {
  var loaded = array<array<vec4<f32>, 2>, COLUMN_LOADS>();
  #unroll for (var n = 0u; n < COLUMN_LOADS; n++) {
    let i = lane + n * WORKGROUP;
    let row = min(first + i / VECTORS, end - 1u);
    let v = i % VECTORS;
    loaded[n] = array(load_query(item, row, head, v), load_d_output(item, row, head, v));
  }
  #unroll for (var n = 0u; n < COLUMN_LOADS; n++) {
    let i = lane + n * WORKGROUP;
    if i < BK * VECTORS {
      put_column(QUERIES, i / VECTORS, i % VECTORS, loaded[n][0]);
      put_column(D_OUTPUTS, i / VECTORS, i % VECTORS, loaded[n][1]);
    }
  }
}

fn store_sums(
  item: u32, owner: u32, first_row: u32, last_row: u32, group: u32, column: u32,
  key_sums: ptr<function, Results>, value_sums: ptr<function, Results>,
) {
  put_shares(key_sums, 0u, group, column);
  put_shares(value_sums, 1u, group, column);
  if SHARES > 1u {
    workgroupBarrier();
  }
  take_shares(key_sums, 0u, group, column);
  take_shares(value_sums, 1u, group, column);
  #unroll for (var r = 0u; r < RQ; r++) {
    let row = first_row + group + r * ROW_GROUPS;
    if row <= last_row {
      #unroll for (var i = 0u; i < RV; i++) {
        let v = column + i * COLUMN_GROUPS;
        if v < VECTORS {
          store_d_key(item, row, owner, v, (*key_sums)[r][i] * SCALE);
          store_d_value(item, row, owner, v, (*value_sums)[r][i]);
        }
      }
    }
  }
}
