// attention_backward_key_value: d_key and d_value of causal grouped-query attention within
// documents; P is recomputed from the logsumexp (Dao, arXiv:2307.08691, algorithm 2, the key side).
//
//   0 qkv        read   f32 [tokens, STRIDE]           query heads | key heads | value heads
//   1 d_output   read   f32 [tokens, HEADS · HEAD_DIM]
//   2 lse        read   f32 [tokens, HEADS]            natural log
//   3 delta      read   f32 [tokens, HEADS]
//   4 documents  read   u32 [2 · tokens]               start of each position's document, then, from
//                                                      DOCUMENT_ENDS on, the end (exclusive)
//   5 d_qkv      write  f32 [tokens, STRIDE]           the key and value columns are overwritten
//   6 step       uniform
//
// A workgroup owns BQ keys of one key-value head (the rows of the shared tiling) and loops over the
// query heads of its group and tiles of BK queries (the columns), from its first key to the last
// query that sees its last key: no atomics, no scratch.
// Grid: x over key tiles, y over key-value heads. Workgroup memory: 16 · (ROW_TILE + 2 · BK ·
// COLUMN_PITCH) bytes.
@group(0) @binding(0) var<storage, read> qkv: array<vec4<f32>>;
@group(0) @binding(1) var<storage, read> d_output: array<vec4<f32>>;
@group(0) @binding(2) var<storage, read> lse: array<f32>;
@group(0) @binding(3) var<storage, read> delta: array<f32>;
@group(0) @binding(4) var<storage, read> documents: array<u32>;
@group(0) @binding(5) var<storage, read_write> d_qkv: array<vec4<f32>>;
@group(0) @binding(6) var<uniform> step: Step;

const ROW: u32 = STRIDE / 4u;
// Where things lie in the tiles: values behind keys, d_output behind queries, dS behind P.
const VALUES: u32 = BQ * ROW_PITCH;
const SLOPES: u32 = BK * COLUMN_PITCH;
const D_SCORES: u32 = BK * BQ / 4u;

fn stage_rows(lane: u32, key0: u32, last: u32, kv_head: u32, first: u32) {
  for (var i = lane; i < BQ * CHUNK; i += WORKGROUP) {
    let at = min(key0 + i / CHUNK, last) * ROW + kv_head * VECTORS + first + i % CHUNK;
    row_tile[i / CHUNK * ROW_PITCH + i % CHUNK] = qkv[at + KEY_OFFSET / 4u];
    row_tile[VALUES + i / CHUNK * ROW_PITCH + i % CHUNK] = qkv[at + VALUE_OFFSET / 4u];
  }
}

fn stage_queries(lane: u32, first_query: u32, end: u32, head: u32) {
  for (var i = lane; i < BK * VECTORS; i += WORKGROUP) {
    let row = min(first_query + i / VECTORS, end - 1u);
    let v = head * VECTORS + i % VECTORS;
    column_tile[i / VECTORS * COLUMN_PITCH + i % VECTORS] = qkv[row * ROW + v];
    column_tile[SLOPES + i / VECTORS * COLUMN_PITCH + i % VECTORS] = d_output[row * HEADS * VECTORS + v];
  }
}

fn run(lane: u32, workgroup: vec3<u32>, workgroups: vec3<u32>) {
  let kv_head = workgroup.y;
  let first_row = workgroup.x * BQ;
  if first_row >= step.tokens {
    return;
  }
  let last_row = min(first_row + BQ, step.tokens) - 1u;
  let end = query_end(last_row, documents[DOCUMENT_ENDS + last_row]);
  let group = lane / COLUMN_GROUPS;
  let column = lane % COLUMN_GROUPS;

  var d_keys = Results();
  var d_values = Results();
  for (var member = 0u; member < HEADS / KV_HEADS; member++) {
    let head = kv_head * (HEADS / KV_HEADS) + member;
    for (var q0 = first_row / BK * BK; q0 < end; q0 += BK) {
      stage_queries(lane, q0, end, head);
      var weights = Scores();
      var slopes = Scores();
      for (var first = 0u; first < VECTORS; first += CHUNK) {
        stage_rows(lane, first_row, last_row, kv_head, first);
        workgroupBarrier();
        add_products(&weights, 0u, 0u, group, column, first);
        add_products(&slopes, VALUES, SLOPES, group, column, first);
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
      store_weights(&weights, 0u, group, column);
      store_weights(&slopes, D_SCORES, group, column);
      workgroupBarrier();
      add_weighted(&d_values, 0u, SLOPES, group, column);
      add_weighted(&d_keys, D_SCORES, 0u, group, column);
      workgroupBarrier();
    }
  }

  for (var r = 0u; r < RQ; r++) {
    let row = first_row + group + r * ROW_GROUPS;
    if row <= last_row {
      for (var i = 0u; i < RV; i++) {
        let v = column + i * COLUMN_GROUPS;
        if v < VECTORS {
          d_qkv[row * ROW + KEY_OFFSET / 4u + kv_head * VECTORS + v] = d_keys[r][i];
          d_qkv[row * ROW + VALUE_OFFSET / 4u + kv_head * VECTORS + v] = d_values[r][i];
        }
      }
    }
  }
}
