// attention_backward_query: d_query of grouped-query attention; P is recomputed from the logsumexp
// (Dao, arXiv:2307.08691, algorithm 2, the query side). Bindings: lib/attention/operands.wgsl.
//
// Every element of d_query has one owner: no atomics. Grid: x over query tiles of BQ,
// y over heads and batch items, dealt out by `assigned`.
#import lib/attention/operands
#import lib/attention/score
#import lib/attention/tile
#import lib/attention/assigned

fn stage_rows(lane: u32, item: u32, first_row: u32, last_row: u32, head: u32, first: u32) {
  var loaded = array<array<vec4<f32>, 2>, ROW_LOADS>();
  #unroll for (var n = 0u; n < ROW_LOADS; n++) {
    let i = lane + n * WORKGROUP;
    let row = min(first_row + i / CHUNK, last_row);
    let v = first + i % CHUNK;
    loaded[n] = array(load_query(item, row, head, v), load_d_output(item, row, head, v));
  }
  #unroll for (var n = 0u; n < ROW_LOADS; n++) {
    let i = lane + n * WORKGROUP;
    if i < BQ * CHUNK {
      put_row(QUERIES, i / CHUNK, i % CHUNK, loaded[n][0]);
      put_row(D_OUTPUTS, i / CHUNK, i % CHUNK, loaded[n][1]);
    }
  }
}

fn stage_keys(lane: u32, item: u32, key0: u32, key_end: u32, kv_head: u32) {
  var loaded = array<array<vec4<f32>, 2>, COLUMN_LOADS>();
  #unroll for (var n = 0u; n < COLUMN_LOADS; n++) {
    let i = lane + n * WORKGROUP;
    let key = min(key0 + i / VECTORS, key_end - 1u);
    loaded[n] = array(load_key(item, key, kv_head, i % VECTORS), load_value(item, key, kv_head, i % VECTORS));
  }
  #unroll for (var n = 0u; n < COLUMN_LOADS; n++) {
    let i = lane + n * WORKGROUP;
    if i < BK * VECTORS {
      put_column(KEYS, i / VECTORS, i % VECTORS, loaded[n][0]);
      put_column(VALUES, i / VECTORS, i % VECTORS, loaded[n][1]);
    }
  }
}

fn run(lane: u32, workgroup: vec3<u32>, workgroups: vec3<u32>) {
  let turn = assigned(workgroup, workgroups);
  let place = place_of(turn.y, HEADS);
  let item = place.x;
  let head = place.y;
  let kv_head = head / (HEADS / KV_HEADS);
  let first_row = turn.x * BQ;
  if first_row >= query_count() {
    return;
  }
  let last_row = min(first_row + BQ, query_count()) - 1u;
  let key_end = end_key(item, last_row);
  let mine = group_and_column(lane);
  let group = mine.x;
  let column = mine.y;

  var results = Results();
  var seen = array<vec2<u32>, RQ>();
  var row_lse = array<f32, RQ>();
  var row_delta = array<f32, RQ>();
  #unroll for (var r = 0u; r < RQ; r++) {
    let row = min(first_row + group + r * ROW_GROUPS, last_row);
    seen[r] = seen_keys(item, row);
    row_lse[r] = load_lse(item, row, head);
    row_delta[r] = load_delta(item, row, head);
  }
  let whole_from = first_key(item, last_row);
  let whole_end = end_key(item, first_row);

  if RESIDENT {
    stage_rows(lane, item, first_row, last_row, head, 0u);
  }

  for (var k0 = first_key(item, first_row) / BK * BK; k0 < key_end; k0 += BK) {
    stage_keys(lane, item, k0, key_end, kv_head);
    var scores = Scores();
    var d_weights = Scores();
    for (var first = 0u; first < VECTORS; first += CHUNK) {
      if !RESIDENT {
        if first > 0u {
          workgroupBarrier();
        }
        stage_rows(lane, item, first_row, last_row, head, first);
      }
      workgroupBarrier();
      add_products(&scores, QUERIES, KEYS, group, column, first);
      add_products(&d_weights, D_OUTPUTS, VALUES, group, column, first);
    }
    if !RESIDENT {
      workgroupBarrier();
    }
    let whole = !DENSE && k0 >= whole_from && k0 + BK <= whole_end;
    #unroll for (var r = 0u; r < RQ; r++) {
      var words = vec4<u32>();
      #unroll for (var j = 0u; j < RK; j++) {
        let key = k0 + column + j * COLUMN_GROUPS;
        var shown = whole | (key - seen[r].x < seen[r].y);
        var added = 0.0;
#if DENSE
        added = bias(item, head, min(first_row + group + r * ROW_GROUPS, last_row), key);
        shown = shown & (added > UNMASKED);
#endif
        let score = score_of(scores[r][j]);
        let weight = select(0.0, probability(score, added, row_lse[r]), shown);
        if j % KEYS_PER_BLOCK == 0u {
          words = words_of(head, first_row + group + r * ROW_GROUPS, key);
        }
        let kept = kept_of(words, key);
        scores[r][j] = score_slope(score) * weight * (kept * d_weights[r][j] - row_delta[r]);
      }
    }
    put_weights(&scores, 0u, group, column);
    workgroupBarrier();
    add_weighted(&results, 0u, KEYS, group, column);
    workgroupBarrier();
  }

  put_shares(&results, 0u, group, column);
  if SHARES > 1u {
    workgroupBarrier();
  }
  take_shares(&results, 0u, group, column);
  #unroll for (var r = 0u; r < RQ; r++) {
    let row = first_row + group + r * ROW_GROUPS;
    if row <= last_row {
      #unroll for (var i = 0u; i < RV; i++) {
        let v = column + i * COLUMN_GROUPS;
        if v < VECTORS {
          store_d_query(item, row, head, v, results[r][i] * SCALE);
        }
      }
    }
  }
}
