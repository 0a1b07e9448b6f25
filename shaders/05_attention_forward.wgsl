// attention_forward: causal grouped-query attention within documents, with online softmax
// (Dao, "FlashAttention-2", arXiv:2307.08691; Milakov and Gimelshein, arXiv:1805.02867).
//
//   0 query      read   f32 [tokens, Q_STRIDE]         head h at column h · HEAD_DIM
//   1 keys       read   f32 [keys, KV_STRIDE]          heads from KEY_OFFSET, values from VALUE_OFFSET,
//                                                  rows where lib/key_row.wgsl says
//   2 documents  read   u32 [tokens]                   first key that each query may see
//   3 output     write  f32 [tokens, HEADS · HEAD_DIM] overwritten
//   4 lse        write  f32 [tokens, HEADS]            overwritten: natural log of Σ exp(score)
//   5 step       uniform
//
// A query sees what lib/attention_mask.wgsl says. Scores are kept in base 2. Key tiles that no query
// of the tile sees are skipped, and those that every query sees wholly are not masked. A query that
// sees no key gives zeros and the logsumexp of MASKED.
// Grid: x over query tiles of BQ, y over heads.
@group(0) @binding(0) var<storage, read> query: array<vec4<f32>>;
@group(0) @binding(1) var<storage, read> keys: array<vec4<f32>>;
@group(0) @binding(2) var<storage, read> documents: array<u32>;
@group(0) @binding(3) var<storage, read_write> output: array<vec4<f32>>;
@group(0) @binding(4) var<storage, read_write> lse: array<f32>;
@group(0) @binding(5) var<uniform> step: Step;

// What each invocation knows of a row, by column and then by row; the largest score of each row so
// far, and the factor that corrects what was summed before.
var<workgroup> partials: array<f32, COLUMN_GROUPS * (BQ + 1u)>;
var<workgroup> row_max: array<f32, BQ>;
var<workgroup> corrections: array<f32, BQ>;

// Loads come before stores, so that an invocation has all of them in flight at once.
fn stage_queries(lane: u32, first_row: u32, last_row: u32, head: u32, first: u32) {
  var values = array<vec4<f32>, ROW_LOADS>();
  for (var n = 0u; n < ROW_LOADS; n++) {
    let i = lane + n * WORKGROUP;
    let row = min(first_row + i / CHUNK, last_row);
    values[n] = query[(row * Q_STRIDE + head * HEAD_DIM) / 4u + first + i % CHUNK];
  }
  for (var n = 0u; n < ROW_LOADS; n++) {
    let i = lane + n * WORKGROUP;
    if i < BQ * CHUNK {
      put_row(0u, i / CHUNK, i % CHUNK, values[n]);
    }
  }
}

fn stage_keys(lane: u32, key0: u32, key_count: u32, offset: u32) {
  var values = array<vec4<f32>, COLUMN_LOADS>();
  for (var n = 0u; n < COLUMN_LOADS; n++) {
    let i = lane + n * WORKGROUP;
    let key = key_row(min(key0 + i / VECTORS, key_count - 1u));
    values[n] = keys[(key * KV_STRIDE + offset) / 4u + i % VECTORS];
  }
  for (var n = 0u; n < COLUMN_LOADS; n++) {
    let i = lane + n * WORKGROUP;
    if i < BK * VECTORS {
      put_column(0u, i / VECTORS, i % VECTORS, values[n]);
    }
  }
}

// Turns products into scores in base 2, masked where a query does not see a key.
fn finish_scores(scores: ptr<function, Scores>, rows: ptr<function, array<u32, RQ>>, key0: u32, whole: bool) {
  for (var r = 0u; r < RQ; r++) {
    for (var j = 0u; j < RK; j++) {
      (*scores)[r][j] = score_of((*scores)[r][j]) * LOG2_E;
    }
    if !whole {
      let first = first_key((*rows)[r]);
      let last = last_key((*rows)[r]);
      for (var j = 0u; j < RK; j++) {
        let key = key0 + j * COLUMN_GROUPS;
        (*scores)[r][j] = select(MASKED, (*scores)[r][j], key >= first && key <= last);
      }
    }
  }
}

fn run(lane: u32, workgroup: vec3<u32>, workgroups: vec3<u32>) {
  let head = workgroup.y;
  let kv_head = head / (HEADS / KV_HEADS);
  let first_row = workgroup.x * BQ;
  if first_row >= step.tokens {
    return;
  }
  let last_row = min(first_row + BQ, step.tokens) - 1u;
  let key_count = last_key(last_row) + 1u;
  let group = lane / COLUMN_GROUPS;
  let column = lane % COLUMN_GROUPS;

  var results = Results();
  var totals = array<f32, RQ>();
  var rows = array<u32, RQ>();
  for (var r = 0u; r < RQ; r++) {
    rows[r] = min(first_row + group + r * ROW_GROUPS, last_row);
  }
  for (var i = lane; i < BQ; i += WORKGROUP) {
    row_max[i] = MASKED;
  }
  if RESIDENT {
    stage_queries(lane, first_row, last_row, head, 0u);
  }

  // A ring may hold anything before the first key that a query of the tile sees.
  let first_seen = first_key(first_row);
  for (var k0 = select(first_seen / BK * BK, first_seen, RINGED); k0 < key_count; k0 += BK) {
    stage_keys(lane, k0, key_count, KEY_OFFSET + kv_head * HEAD_DIM);
    var scores = Scores();
    for (var first = 0u; first < VECTORS; first += CHUNK) {
      if !RESIDENT {
        if first > 0u {
          workgroupBarrier();
        }
        stage_queries(lane, first_row, last_row, head, first);
      }
      workgroupBarrier();
      add_products(&scores, 0u, 0u, group, column, first);
    }
    let whole = k0 >= first_key(last_row) && k0 + BK - 1u <= last_key(first_row);
    finish_scores(&scores, &rows, k0 + column, whole);
    for (var r = 0u; r < RQ; r++) {
      var best = scores[r][0];
      for (var j = 1u; j < RK; j++) {
        best = max(best, scores[r][j]);
      }
      partials[column * (BQ + 1u) + group + r * ROW_GROUPS] = best;
    }
    workgroupBarrier();

    stage_keys(lane, k0, key_count, VALUE_OFFSET + kv_head * HEAD_DIM);
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

    for (var r = 0u; r < RQ; r++) {
      let largest = row_max[group + r * ROW_GROUPS];
      let correction = corrections[group + r * ROW_GROUPS];
      totals[r] *= correction;
      for (var i = 0u; i < RV; i++) {
        results[r][i] *= correction;
      }
      for (var j = 0u; j < RK; j++) {
        scores[r][j] = select(0.0, exp2(scores[r][j] - largest), scores[r][j] > UNMASKED);
        totals[r] += scores[r][j];
      }
    }
    put_weights(&scores, 0u, group, column);
    workgroupBarrier();
    add_weighted(&results, 0u, 0u, group, column);
    workgroupBarrier();
  }

  // Each invocation has summed the weights of its own columns.
  for (var r = 0u; r < RQ; r++) {
    partials[column * (BQ + 1u) + group + r * ROW_GROUPS] = totals[r];
  }
  workgroupBarrier();
  for (var r = 0u; r < RQ; r++) {
    let row = first_row + group + r * ROW_GROUPS;
    if row <= last_row {
      var total = 0.0;
      for (var c = 0u; c < COLUMN_GROUPS; c++) {
        total += partials[c * (BQ + 1u) + group + r * ROW_GROUPS];
      }
      total = max(total, 1e-30);
      for (var i = 0u; i < RV; i++) {
        let v = column + i * COLUMN_GROUPS;
        if v < VECTORS {
          output[(row * HEADS + head) * VECTORS + v] = results[r][i] / total;
        }
      }
      if column == 0u {
        lse[row * HEADS + head] = row_max[group + r * ROW_GROUPS] * LN_2 + log(total);
      }
    }
  }
}
