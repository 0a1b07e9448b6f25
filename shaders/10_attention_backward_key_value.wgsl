// attention_backward_key_value: d_key and d_value of causal grouped-query attention within
// documents; P is recomputed from the logsumexp (Dao, arXiv:2307.08691, algorithm 2, the key side).
//
//   0 qkv        read   f32 [tokens, STRIDE]           query heads | key heads | value heads
//   1 d_output   read   f32 [tokens, HEADS · HEAD_DIM]
//   2 lse        read   f32 [tokens, HEADS]            natural log
//   3 delta      read   f32 [tokens, HEADS]
//   4 documents  read   u32 [2 · tokens]               start of each position's document, then, from
//                                                      DOCUMENT_ENDS on, the end (exclusive)
//   5 d_keys     write  f32 [tokens, D_STRIDE]         key and value columns are overwritten
//   6 step       uniform
//
// A workgroup owns BQ keys (the rows of the shared tiling) and loops over MEMBERS query heads and
// tiles of BK queries (the columns), from its first key to the last query that sees its last key: no
// atomics. MEMBERS is a whole group of query heads, whose sums are the gradient, or 1: then each
// query head leaves its part for attention_group_sum, and more workgroups share the work.
// Grid: x over key tiles, y over HEADS / MEMBERS.
@group(0) @binding(0) var<storage, read> qkv: array<vec4<f32>>;
@group(0) @binding(1) var<storage, read> d_output: array<vec4<f32>>;
@group(0) @binding(2) var<storage, read> lse: array<f32>;
@group(0) @binding(3) var<storage, read> delta: array<f32>;
@group(0) @binding(4) var<storage, read> documents: array<u32>;
@group(0) @binding(5) var<storage, read_write> d_keys: array<vec4<f32>>;
@group(0) @binding(6) var<uniform> step: Step;

const ROW: u32 = STRIDE / 4u;
// Kinds of rows, of columns and of weights.
const KEYS: u32 = 0u;
const VALUES: u32 = 1u;
const QUERIES: u32 = 0u;
const D_OUTPUTS: u32 = 1u;
const PROBABILITIES: u32 = 0u;
const D_SCORES: u32 = 1u;

fn stage_rows(lane: u32, key0: u32, last: u32, kv_head: u32, first: u32) {
  var values = array<array<vec4<f32>, 2>, ROW_LOADS>();
  for (var n = 0u; n < ROW_LOADS; n++) {
    let i = lane + n * WORKGROUP;
    let at = min(key0 + i / CHUNK, last) * ROW + kv_head * VECTORS + first + i % CHUNK;
    values[n] = array(qkv[at + KEY_OFFSET / 4u], qkv[at + VALUE_OFFSET / 4u]);
  }
  for (var n = 0u; n < ROW_LOADS; n++) {
    let i = lane + n * WORKGROUP;
    if i < BQ * CHUNK {
      put_row(KEYS, i / CHUNK, i % CHUNK, values[n][0]);
      put_row(VALUES, i / CHUNK, i % CHUNK, values[n][1]);
    }
  }
}

fn stage_queries(lane: u32, first_query: u32, end: u32, head: u32) {
  var values = array<array<vec4<f32>, 2>, COLUMN_LOADS>();
  for (var n = 0u; n < COLUMN_LOADS; n++) {
    let i = lane + n * WORKGROUP;
    let row = min(first_query + i / VECTORS, end - 1u);
    let v = head * VECTORS + i % VECTORS;
    values[n] = array(qkv[row * ROW + v], d_output[row * HEADS * VECTORS + v]);
  }
  for (var n = 0u; n < COLUMN_LOADS; n++) {
    let i = lane + n * WORKGROUP;
    if i < BK * VECTORS {
      put_column(QUERIES, i / VECTORS, i % VECTORS, values[n][0]);
      put_column(D_OUTPUTS, i / VECTORS, i % VECTORS, values[n][1]);
    }
  }
}

fn run(lane: u32, workgroup: vec3<u32>, workgroups: vec3<u32>) {
  let kv_head = workgroup.y * MEMBERS / (HEADS / KV_HEADS);
  let first_row = workgroup.x * BQ;
  if first_row >= step.tokens {
    return;
  }
  let last_row = min(first_row + BQ, step.tokens) - 1u;
  let end = query_end(last_row, documents[DOCUMENT_ENDS + last_row]);
  let group = lane / COLUMN_GROUPS;
  let column = lane % COLUMN_GROUPS;

  var key_sums = Results();
  var value_sums = Results();
  if RESIDENT {
    stage_rows(lane, first_row, last_row, kv_head, 0u);
  }
  for (var head = workgroup.y * MEMBERS; head < (workgroup.y + 1u) * MEMBERS; head++) {
    for (var q0 = first_row / BK * BK; q0 < end; q0 += BK) {
      stage_queries(lane, q0, end, head);
      var weights = Scores();
      var slopes = Scores();
      for (var first = 0u; first < VECTORS; first += CHUNK) {
        if !RESIDENT {
          if first > 0u {
            workgroupBarrier();
          }
          stage_rows(lane, first_row, last_row, kv_head, first);
        }
        workgroupBarrier();
        add_products(&weights, KEYS, QUERIES, group, column, first);
        add_products(&slopes, VALUES, D_OUTPUTS, group, column, first);
      }
      if !RESIDENT {
        workgroupBarrier();
      }
      let last_query = q0 + BK - 1u;
      let whole = last_query < end && first_key(last_query) <= first_row && last_row <= last_key(q0);
      for (var j = 0u; j < RK; j++) {
        let q = min(q0 + column + j * COLUMN_GROUPS, end - 1u);
        let inside = q0 + column + j * COLUMN_GROUPS < end;
        let row_lse = lse[q * HEADS + head];
        let row_delta = delta[q * HEADS + head];
        let first = first_key(q);
        for (var r = 0u; r < RQ; r++) {
          let key = first_row + group + r * ROW_GROUPS;
          let visible = whole || (inside && key >= first && key <= last_key(q));
          let score = score_of(weights[r][j]);
          let weight = select(0.0, exp2((score - row_lse) * LOG2_E), visible);
          weights[r][j] = weight;
          slopes[r][j] = score_slope(score) * weight * (slopes[r][j] - row_delta);
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

  for (var r = 0u; r < RQ; r++) {
    let row = first_row + group + r * ROW_GROUPS;
    if row <= last_row {
      for (var i = 0u; i < RV; i++) {
        let v = column + i * COLUMN_GROUPS;
        if v < VECTORS {
          let at = row * (D_STRIDE / 4u) + workgroup.y * VECTORS + v;
          d_keys[at + D_KEY_OFFSET / 4u] = key_sums[r][i];
          d_keys[at + D_VALUE_OFFSET / 4u] = value_sums[r][i];
        }
      }
    }
  }
}
