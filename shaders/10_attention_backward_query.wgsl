// attention_backward_query: d_query of causal grouped-query attention within documents; P is
// recomputed from the logsumexp (Dao, arXiv:2307.08691, algorithm 2, the query side).
//
//   0 qkv        read        f32 [tokens, STRIDE]           query heads | key heads | value heads
//   1 d_output   read        f32 [tokens, HEADS · HEAD_DIM]
//   2 lse        read        f32 [tokens, HEADS]            natural log
//   3 delta      read        f32 [tokens, HEADS]
//   4 documents  read        u32 [tokens]
//   5 d_qkv      write       f32 [tokens, STRIDE]           the query columns are overwritten
//   6 step       uniform
//
// Every element of d_query has one owner: no atomics, no scratch. Grid: x over query tiles of BQ,
// y over heads.
@group(0) @binding(0) var<storage, read> qkv: array<vec4<f32>>;
@group(0) @binding(1) var<storage, read> d_output: array<vec4<f32>>;
@group(0) @binding(2) var<storage, read> lse: array<f32>;
@group(0) @binding(3) var<storage, read> delta: array<f32>;
@group(0) @binding(4) var<storage, read> documents: array<u32>;
@group(0) @binding(5) var<storage, read_write> d_qkv: array<vec4<f32>>;
@group(0) @binding(6) var<uniform> step: Step;

const ROW: u32 = STRIDE / 4u;
// Kinds of rows and of columns.
const QUERIES: u32 = 0u;
const D_OUTPUTS: u32 = 1u;
const KEYS: u32 = 0u;
const VALUES: u32 = 1u;

fn stage_rows(lane: u32, first_row: u32, last_row: u32, head: u32, first: u32) {
  var values = array<array<vec4<f32>, 2>, ROW_LOADS>();
  for (var n = 0u; n < ROW_LOADS; n++) {
    let i = lane + n * WORKGROUP;
    let row = min(first_row + i / CHUNK, last_row);
    let v = head * VECTORS + first + i % CHUNK;
    values[n] = array(qkv[row * ROW + v], d_output[row * HEADS * VECTORS + v]);
  }
  for (var n = 0u; n < ROW_LOADS; n++) {
    let i = lane + n * WORKGROUP;
    if i < BQ * CHUNK {
      put_row(QUERIES, i / CHUNK, i % CHUNK, values[n][0]);
      put_row(D_OUTPUTS, i / CHUNK, i % CHUNK, values[n][1]);
    }
  }
}

fn stage_keys(lane: u32, key0: u32, key_count: u32, kv_head: u32) {
  var values = array<array<vec4<f32>, 2>, COLUMN_LOADS>();
  for (var n = 0u; n < COLUMN_LOADS; n++) {
    let i = lane + n * WORKGROUP;
    let at = min(key0 + i / VECTORS, key_count - 1u) * ROW + kv_head * VECTORS + i % VECTORS;
    values[n] = array(qkv[at + KEY_OFFSET / 4u], qkv[at + VALUE_OFFSET / 4u]);
  }
  for (var n = 0u; n < COLUMN_LOADS; n++) {
    let i = lane + n * WORKGROUP;
    if i < BK * VECTORS {
      put_column(KEYS, i / VECTORS, i % VECTORS, values[n][0]);
      put_column(VALUES, i / VECTORS, i % VECTORS, values[n][1]);
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
  var rows = array<u32, RQ>();
  for (var r = 0u; r < RQ; r++) {
    rows[r] = min(first_row + group + r * ROW_GROUPS, last_row);
  }

  if RESIDENT {
    stage_rows(lane, first_row, last_row, head, 0u);
  }

  for (var k0 = first_key(first_row) / BK * BK; k0 < key_count; k0 += BK) {
    stage_keys(lane, k0, key_count, kv_head);
    var scores = Scores();
    var d_weights = Scores();
    for (var first = 0u; first < VECTORS; first += CHUNK) {
      if !RESIDENT {
        if first > 0u {
          workgroupBarrier();
        }
        stage_rows(lane, first_row, last_row, head, first);
      }
      workgroupBarrier();
      add_products(&scores, QUERIES, KEYS, group, column, first);
      add_products(&d_weights, D_OUTPUTS, VALUES, group, column, first);
    }
    if !RESIDENT {
      workgroupBarrier();
    }
    let whole = k0 >= first_key(last_row) && k0 + BK - 1u <= last_key(first_row);
    for (var r = 0u; r < RQ; r++) {
      let row_lse = lse[rows[r] * HEADS + head];
      let row_delta = delta[rows[r] * HEADS + head];
      for (var j = 0u; j < RK; j++) {
        let key = k0 + column + j * COLUMN_GROUPS;
        let visible = whole || (key >= first_key(rows[r]) && key <= last_key(rows[r]));
        let score = score_of(scores[r][j]);
        let weight = select(0.0, exp2((score - row_lse) * LOG2_E), visible);
        scores[r][j] = score_slope(score) * weight * (d_weights[r][j] - row_delta);
      }
    }
    put_weights(&scores, 0u, group, column);
    workgroupBarrier();
    add_weighted(&results, 0u, KEYS, group, column);
    workgroupBarrier();
  }

  for (var r = 0u; r < RQ; r++) {
    let row = first_row + group + r * ROW_GROUPS;
    if row <= last_row {
      for (var i = 0u; i < RV; i++) {
        let v = column + i * COLUMN_GROUPS;
        if v < VECTORS {
          d_qkv[row * ROW + head * VECTORS + v] = results[r][i];
        }
      }
    }
  }
}
