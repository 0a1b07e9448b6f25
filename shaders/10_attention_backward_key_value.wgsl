// attention_backward_key_value: d_key and d_value of grouped-query attention; P is recomputed from
// the logsumexp (Dao, arXiv:2307.08691, algorithm 2, the key side). Bindings:
// lib/attention/operands.wgsl.
//
// A workgroup owns BQ keys (the rows of the shared tiling) and loops over MEMBERS query heads and
// tiles of BK queries (the columns), from the first query that sees its first key to the last that
// sees its last key: no atomics. MEMBERS is a whole group of query heads, whose sums are the gradient,
// or 1: then each query head leaves its part for attention_group_sum, and more workgroups share the
// work. Grid: x over key tiles, y over owners (HEADS / MEMBERS) and batch items, dealt out by `assigned`.
#import lib/attention/operands
#import lib/attention/score
#import lib/attention/tile
#import lib/attention/assigned

// Kinds of weights.
const PROBABILITIES: u32 = 0u;
const D_SCORES: u32 = 1u;

fn stage_rows(lane: u32, item: u32, key0: u32, last: u32, kv_head: u32, first: u32) {
  var loaded = array<array<vec4<f32>, 2>, ROW_LOADS>();
  #unroll for (var n = 0u; n < ROW_LOADS; n++) {
    let i = lane + n * WORKGROUP;
    let key = min(key0 + i / CHUNK, last);
    let v = first + i % CHUNK;
    loaded[n] = array(load_key(item, key, kv_head, v), load_value(item, key, kv_head, v));
  }
  #unroll for (var n = 0u; n < ROW_LOADS; n++) {
    let i = lane + n * WORKGROUP;
    if i < BQ * CHUNK {
      put_row(KEYS, i / CHUNK, i % CHUNK, loaded[n][0]);
      put_row(VALUES, i / CHUNK, i % CHUNK, loaded[n][1]);
    }
  }
}

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

fn run(lane: u32, workgroup: vec3<u32>, workgroups: vec3<u32>) {
  let turn = assigned(workgroup, workgroups);
  let place = place_of(turn.y, HEADS / MEMBERS);
  let item = place.x;
  let owner = place.y;
  let kv_head = owner * MEMBERS / (HEADS / KV_HEADS);
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
  if RESIDENT {
    stage_rows(lane, item, first_row, last_row, kv_head, 0u);
  }
  for (var head = owner * MEMBERS; head < (owner + 1u) * MEMBERS; head++) {
    for (var q0 = first_query(item, first_row) / BK * BK; q0 < end; q0 += BK) {
      stage_queries(lane, item, q0, end, head);
      // Before the products, which hide how long these loads take.
      var seen = array<vec2<u32>, RK>();
      var column_lse = array<f32, RK>();
      var column_delta = array<f32, RK>();
      #unroll for (var j = 0u; j < RK; j++) {
        let q = q0 + column + j * COLUMN_GROUPS;
        seen[j] = select(vec2(0u), seen_keys(item, min(q, end - 1u)), q < end);
        column_lse[j] = load_lse(item, min(q, end - 1u), head);
        column_delta[j] = load_delta(item, min(q, end - 1u), head);
      }
      let last_query = q0 + BK - 1u;
      let whole = !DENSE && last_query < end && first_key(item, last_query) <= first_row && last_row < end_key(item, q0);
      var weights = Scores();
      var slopes = Scores();
      for (var first = 0u; first < VECTORS; first += CHUNK) {
        if !RESIDENT {
          if first > 0u {
            workgroupBarrier();
          }
          stage_rows(lane, item, first_row, last_row, kv_head, first);
        }
        workgroupBarrier();
        add_products(&weights, KEYS, QUERIES, group, column, first);
        add_products(&slopes, VALUES, D_OUTPUTS, group, column, first);
      }
      if !RESIDENT {
        workgroupBarrier();
      }
      #unroll for (var j = 0u; j < RK; j++) {
        var words = vec4<u32>();
        #unroll for (var r = 0u; r < RQ; r++) {
          let key = first_row + group + r * ROW_GROUPS;
          var shown = whole | (key - seen[j].x < seen[j].y);
          var added = 0.0;
#if DENSE
          added = bias(item, head, min(q0 + column + j * COLUMN_GROUPS, end - 1u), key);
          shown = shown & (added > UNMASKED);
#endif
          let score = score_of(weights[r][j]);
          let weight = select(0.0, probability(score, added, column_lse[j]), shown);
          if r % KEYS_PER_BLOCK == 0u {
            words = words_of(head, q0 + column + j * COLUMN_GROUPS, key);
          }
          let kept = kept_of(words, key);
          weights[r][j] = kept * weight;
          slopes[r][j] = score_slope(score) * weight * (kept * slopes[r][j] - column_delta[j]);
        }
      }
      put_weights(&weights, PROBABILITIES, group, column);
      put_weights(&slopes, D_SCORES, group, column);
      workgroupBarrier();
      add_weighted(&value_sums, PROBABILITIES, D_OUTPUTS, group, column);
      add_weighted(&key_sums, D_SCORES, QUERIES, group, column);
      workgroupBarrier();
    }
  }

  store_sums(item, owner, first_row, last_row, group, column, &key_sums, &value_sums);
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
