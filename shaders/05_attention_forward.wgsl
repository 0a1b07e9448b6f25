// attention_forward: grouped-query attention with online softmax (Dao, "FlashAttention-2",
// arXiv:2307.08691; Milakov and Gimelshein, arXiv:1805.02867). Leaves the output and the natural
// logarithm of Σ exp(score). Bindings: lib/attention/operands.wgsl.
//
// What a query sees: lib/attention/mask.wgsl. Scores are kept in base 2.
// Key tiles that no query of the tile sees are skipped, and those that every query sees wholly are
// not masked. A query that sees no key gives zeros and the logsumexp of MASKED.
// Grid: x over query tiles of BQ, y over heads and batch items, dealt out by `assigned`.
#import lib/attention/operands
#import lib/attention/score
#import lib/attention/tile
#import lib/attention/assigned

// What each invocation knows of a row, by column and then by row; the largest score of each row so
// far, and the factor that corrects what was summed before.
var<workgroup> partials: array<f32, COLUMN_GROUPS * (BQ + 1u)>;
var<workgroup> row_max: array<f32, BQ>;
var<workgroup> corrections: array<f32, BQ>;

// Loads come before stores, so that an invocation has all of them in flight at once.
fn stage_queries(lane: u32, item: u32, first_row: u32, last_row: u32, head: u32, first: u32) {
  var loaded = array<vec4<f32>, ROW_LOADS>();
  #unroll for (var n = 0u; n < ROW_LOADS; n++) {
    let i = lane + n * WORKGROUP;
    let row = min(first_row + i / CHUNK, last_row);
    loaded[n] = load_query(item, row, head, first + i % CHUNK);
  }
  #unroll for (var n = 0u; n < ROW_LOADS; n++) {
    let i = lane + n * WORKGROUP;
    if i < BQ * CHUNK {
      put_row(0u, i / CHUNK, i % CHUNK, loaded[n]);
    }
  }
}

fn stage_columns(lane: u32, item: u32, key0: u32, key_end: u32, kv_head: u32, of_values: bool) {
  var loaded = array<vec4<f32>, COLUMN_LOADS>();
  #unroll for (var n = 0u; n < COLUMN_LOADS; n++) {
    let i = lane + n * WORKGROUP;
    let key = min(key0 + i / VECTORS, key_end - 1u);
    if of_values {
      loaded[n] = load_value(item, key, kv_head, i % VECTORS);
    } else {
      loaded[n] = load_key(item, key, kv_head, i % VECTORS);
    }
  }
  #unroll for (var n = 0u; n < COLUMN_LOADS; n++) {
    let i = lane + n * WORKGROUP;
    if i < BK * VECTORS {
      put_column(0u, i / VECTORS, i % VECTORS, loaded[n]);
    }
  }
}

// Turns products into scores in base 2, masked where a query does not see a key.
fn finish_scores(scores: ptr<function, Scores>, rows: ptr<function, array<u32, RQ>>, item: u32, head: u32, key0: u32, whole: bool) {
  #unroll for (var r = 0u; r < RQ; r++) {
    #unroll for (var j = 0u; j < RK; j++) {
      (*scores)[r][j] = score_of((*scores)[r][j]) * SCORE_UNIT_LOG2;
    }
    if !whole {
      let first = first_key(item, (*rows)[r]);
      let end = end_key(item, (*rows)[r]);
      #unroll for (var j = 0u; j < RK; j++) {
        let key = key0 + j * COLUMN_GROUPS;
        // Not `&&`: its branches, one per score, keep SwiftShader's compiler busy for minutes.
        var shown = (key >= first) & (key < end);
#if DENSE
        let added = bias(item, head, (*rows)[r], key);
        (*scores)[r][j] += added * LOG2_E;
        shown = shown & (added > UNMASKED);
#endif
        (*scores)[r][j] = select(MASKED, (*scores)[r][j], shown);
      }
    }
  }
}

// Natural log of Σ exp from the largest score in base 2 and the sum of weights. A row that sees no
// key has MASKED, in whichever base.
fn logsumexp(largest: f32, total: f32) -> f32 {
  return select(MASKED, largest * LN_2 + log(total), largest > UNMASKED);
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
  var totals = array<f32, RQ>();
  var rows = array<u32, RQ>();
  #unroll for (var r = 0u; r < RQ; r++) {
    rows[r] = min(first_row + group + r * ROW_GROUPS, last_row);
  }
  for (var i = lane; i < BQ; i += WORKGROUP) {
    row_max[i] = MASKED;
  }
  if RESIDENT {
    stage_queries(lane, item, first_row, last_row, head, 0u);
  }

  // A ring may hold anything before the first key that a query of the tile sees.
  let first_seen = first_key(item, first_row);
  for (var k0 = select(first_seen / BK * BK, first_seen, RINGED); k0 < key_end; k0 += BK) {
    stage_columns(lane, item, k0, key_end, kv_head, false);
    var scores = Scores();
    for (var first = 0u; first < VECTORS; first += CHUNK) {
      if !RESIDENT {
        if first > 0u {
          workgroupBarrier();
        }
        stage_queries(lane, item, first_row, last_row, head, first);
      }
      workgroupBarrier();
      add_products(&scores, 0u, 0u, group, column, first);
    }
    let whole = !DENSE && k0 >= first_key(item, last_row) && k0 + BK <= end_key(item, first_row);
    finish_scores(&scores, &rows, item, head, k0 + column, whole);
    #unroll for (var r = 0u; r < RQ; r++) {
      var best = scores[r][0];
      #unroll for (var j = 1u; j < RK; j++) {
        best = max(best, scores[r][j]);
      }
      partials[column * (BQ + 1u) + group + r * ROW_GROUPS] = best;
    }
    workgroupBarrier();

    stage_columns(lane, item, k0, key_end, kv_head, true);
    for (var i = lane; i < BQ; i += WORKGROUP) {
      let before = row_max[i];
      var next = before;
      for (var c = 0u; c < COLUMN_GROUPS; c++) {
        next = max(next, partials[c * (BQ + 1u) + i]);
      }
      row_max[i] = next;
      corrections[i] = exp2(before - next);
    }
    workgroupBarrier();

    #unroll for (var r = 0u; r < RQ; r++) {
      let largest = row_max[group + r * ROW_GROUPS];
      let correction = corrections[group + r * ROW_GROUPS];
      totals[r] *= correction;
      #unroll for (var i = 0u; i < RV; i++) {
        results[r][i] *= correction;
      }
      var words = vec4<u32>();
      #unroll for (var j = 0u; j < RK; j++) {
        let key = k0 + column + j * COLUMN_GROUPS;
        if j % KEYS_PER_BLOCK == 0u {
          words = words_of(head, rows[r], key);
        }
        scores[r][j] = select(0.0, exp2(scores[r][j] - largest), scores[r][j] > UNMASKED);
        totals[r] += scores[r][j];
        scores[r][j] *= kept_of(words, key);
      }
    }
    put_weights(&scores, 0u, group, column);
    workgroupBarrier();
    add_weighted(&results, 0u, 0u, group, column);
    workgroupBarrier();
  }

  // Each invocation has summed the weights of its own columns.
  #unroll for (var r = 0u; r < RQ; r++) {
    partials[column * (BQ + 1u) + group + r * ROW_GROUPS] = totals[r];
  }
  put_shares(&results, 0u, group, column);
  workgroupBarrier();
  take_shares(&results, 0u, group, column);
  #unroll for (var r = 0u; r < RQ; r++) {
    let row = first_row + group + r * ROW_GROUPS;
    if row <= last_row {
      var total = 0.0;
      for (var c = 0u; c < COLUMN_GROUPS; c++) {
        total += partials[c * (BQ + 1u) + group + r * ROW_GROUPS];
      }
      total = max(total, LEAST_TOTAL);
      #unroll for (var i = 0u; i < RV; i++) {
        let v = column + i * COLUMN_GROUPS;
        if v < VECTORS {
          store_output(item, row, head, v, results[r][i] / total);
        }
      }
      if column == 0u {
        store_lse(item, row, head, logsumexp(row_max[group + r * ROW_GROUPS], total));
      }
    }
  }
}
