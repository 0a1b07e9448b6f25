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
// A workgroup owns BK keys of one key-value head and loops over the query heads of its group and
// the queries from its first key to the end of its last key's document: no atomics, no scratch.
// Here rows of the shared tiling are keys and columns are queries, so BQ in attention_tile is the
// number of keys and BK the number of queries a tile.
// Grid: x over key tiles, y over key-value heads. Workgroup memory: 4 · (2 · BK · HEAD_DIM + 2 · BQ
// · BK) bytes.
@group(0) @binding(0) var<storage, read> qkv: array<vec4<f32>>;
@group(0) @binding(1) var<storage, read> d_output: array<vec4<f32>>;
@group(0) @binding(2) var<storage, read> lse: array<f32>;
@group(0) @binding(3) var<storage, read> delta: array<f32>;
@group(0) @binding(4) var<storage, read> documents: array<u32>;
@group(0) @binding(5) var<storage, read_write> d_qkv: array<vec4<f32>>;
@group(0) @binding(6) var<uniform> step: Step;

const ROW: u32 = STRIDE / 4u;

var<workgroup> query_tile: array<vec4<f32>, BK * VECTORS>;
var<workgroup> slope_tile: array<vec4<f32>, BK * VECTORS>;
var<workgroup> weights: array<f32, BQ * BK>;
var<workgroup> d_scores: array<f32, BQ * BK>;

fn stage(lane: u32, first_query: u32, query_end: u32, head: u32) {
  for (var i = lane; i < BK * VECTORS; i += WORKGROUP) {
    let row = first_query + i / VECTORS;
    var q = vec4(0.0);
    var slope = vec4(0.0);
    if row < query_end {
      q = qkv[row * ROW + head * VECTORS + i % VECTORS];
      slope = d_output[(row * HEADS + head) * VECTORS + i % VECTORS];
    }
    query_tile[i] = q;
    slope_tile[i] = slope;
  }
}

fn run(lane: u32, workgroup: vec3<u32>, workgroups: vec3<u32>) {
  let kv_head = workgroup.y;
  let first_key = workgroup.x * BQ;
  if first_key >= step.tokens {
    return;
  }
  let last_key = min(first_key + BQ, step.tokens) - 1u;
  let query_end = documents[DOCUMENT_ENDS + last_key];
  let row0 = lane / COLUMN_GROUPS * RQ;
  let column = lane % COLUMN_GROUPS;

  var d_keys = array<array<vec4<f32>, RV>, RQ>();
  var d_values = array<array<vec4<f32>, RV>, RQ>();
  var rows: array<u32, RQ>;
  for (var r = 0u; r < RQ; r++) {
    rows[r] = min(first_key + row0 + r, last_key);
  }

  for (var group = 0u; group < HEADS / KV_HEADS; group++) {
    let head = kv_head * (HEADS / KV_HEADS) + group;
    for (var q0 = first_key; q0 < query_end; q0 += BK) {
      stage(lane, q0, query_end, head);
      workgroupBarrier();
      var scores = array<array<f32, RK>, RQ>();
      var slopes = array<array<f32, RK>, RQ>();
      for (var v = 0u; v < VECTORS; v++) {
        for (var r = 0u; r < RQ; r++) {
          let key = qkv[rows[r] * ROW + KEY_OFFSET / 4u + kv_head * VECTORS + v];
          let value = qkv[rows[r] * ROW + VALUE_OFFSET / 4u + kv_head * VECTORS + v];
          for (var j = 0u; j < RK; j++) {
            let i = (column + j * COLUMN_GROUPS) * VECTORS + v;
            scores[r][j] += dot(query_tile[i], key);
            slopes[r][j] += dot(slope_tile[i], value);
          }
        }
      }
      for (var j = 0u; j < RK; j++) {
        let q = q0 + column + j * COLUMN_GROUPS;
        let inside = min(q, query_end - 1u);
        let row_lse = lse[inside * HEADS + head];
        let row_delta = delta[inside * HEADS + head];
        for (var r = 0u; r < RQ; r++) {
          let visible = q < query_end && rows[r] >= documents[inside] && rows[r] <= q;
          let weight = select(0.0, exp2((scores[r][j] * SCALE - row_lse) * LOG2_E), visible);
          let i = (row0 + r) * BK + column + j * COLUMN_GROUPS;
          weights[i] = weight;
          d_scores[i] = SCALE * weight * (slopes[r][j] - row_delta);
        }
      }
      workgroupBarrier();

      for (var q = 0u; q < BK; q++) {
        for (var i = 0u; i < RV; i++) {
          let v = q * VECTORS + min(column + i * COLUMN_GROUPS, VECTORS - 1u);
          let query = query_tile[v];
          let slope = slope_tile[v];
          for (var r = 0u; r < RQ; r++) {
            d_values[r][i] += weights[(row0 + r) * BK + q] * slope;
            d_keys[r][i] += d_scores[(row0 + r) * BK + q] * query;
          }
        }
      }
      workgroupBarrier();
    }
  }

  for (var r = 0u; r < RQ; r++) {
    let row = first_key + row0 + r;
    if row <= last_key {
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
