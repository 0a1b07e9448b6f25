// uses: math, attention/score, attention/backward_rows, attention/backward_rows_key_value, attention/kept, step, attention/mask_rows, attention/dense_none, attention/mask_rows_back, attention/tile, attention/assigned, attention/key_value
// attention_backward_key_value from the probabilities and score gradients that the kernel of queries
// has kept: two products instead of four, for scratch that grows with the square of the tokens.
//
//   0 … 6             lib/attention/backward_rows.wgsl
//   7 probabilities  read  f32 [HEADS, query tiles, key tiles, 32, 32]
//   8 d_scores       read  as probabilities, in units of SCALE
//
// Tiles, owners and grid are those of 10_attention_backward_key_value.wgsl.
@group(0) @binding(7) var<storage, read> probabilities: array<f32>;
@group(0) @binding(8) var<storage, read> d_scores: array<f32>;

// The block of a query tile and a key tile, a vector for each query and four keys. Neighbours read
// neighbouring keys.
fn stage_kept(lane: u32, block: u32) {
  for (var i = lane; i < BQ / 4u * BK; i += WORKGROUP) {
    let group = i % ROW_GROUPS;
    let q = i / ROW_GROUPS % BK;
    let r = i / ROW_GROUPS / BK;
    let at = block + q * KEPT_BLOCK + r * 4u * ROW_GROUPS + group;
    let place = q % COLUMN_GROUPS * WEIGHT_PITCH + group;
    let j = q / COLUMN_GROUPS;
    weight_tile[PROBABILITIES * RK + j][r][place] = vec4(
      probabilities[at], probabilities[at + ROW_GROUPS],
      probabilities[at + 2u * ROW_GROUPS], probabilities[at + 3u * ROW_GROUPS]);
    weight_tile[D_SCORES * RK + j][r][place] = vec4(
      d_scores[at], d_scores[at + ROW_GROUPS], d_scores[at + 2u * ROW_GROUPS], d_scores[at + 3u * ROW_GROUPS]);
  }
}

fn run(lane: u32, workgroup: vec3<u32>, workgroups: vec3<u32>) {
  let turn = assigned(workgroup, workgroups);
  let place = place_of(turn.y, HEADS / MEMBERS);
  let item = place.x;
  let owner = place.y;
  let first_row = turn.x * BQ;
  if first_row >= key_count() {
    return;
  }
  let last_row = min(first_row + BQ, key_count()) - 1u;
  let end = end_query(item, last_row);
  let mine = group_and_column(lane);
  let group = mine.x;
  let column = mine.y;

  var key_sums = Results();
  var value_sums = Results();
  for (var head = owner * MEMBERS; head < (owner + 1u) * MEMBERS; head++) {
    for (var q0 = first_query(item, first_row) / BK * BK; q0 < end; q0 += BK) {
      stage_queries(lane, item, q0, end, head);
      stage_kept(lane, kept_block(head, q0 / KEPT_BLOCK, turn.x));
      workgroupBarrier();
      add_weighted(&value_sums, PROBABILITIES, D_OUTPUTS, group, column);
      add_weighted(&key_sums, D_SCORES, QUERIES, group, column);
      workgroupBarrier();
    }
  }
  store_sums(item, owner, first_row, last_row, group, column, &key_sums, &value_sums);
}
