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
// y over heads. Workgroup memory: 4 · (BK · HEAD_DIM + BQ · BK) bytes.
@group(0) @binding(0) var<storage, read> qkv: array<vec4<f32>>;
@group(0) @binding(1) var<storage, read> d_output: array<vec4<f32>>;
@group(0) @binding(2) var<storage, read> lse: array<f32>;
@group(0) @binding(3) var<storage, read> delta: array<f32>;
@group(0) @binding(4) var<storage, read> documents: array<u32>;
@group(0) @binding(5) var<storage, read_write> d_qkv: array<vec4<f32>>;
@group(0) @binding(6) var<uniform> step: Step;

const ROW: u32 = STRIDE / 4u;

var<workgroup> tile: array<vec4<f32>, BK * VECTORS>;
var<workgroup> d_scores: array<f32, BQ * BK>;

fn stage(lane: u32, first_key: u32, key_count: u32, offset: u32) {
  for (var i = lane; i < BK * VECTORS; i += WORKGROUP) {
    let key = first_key + i / VECTORS;
    var value = vec4(0.0);
    if key < key_count {
      value = qkv[key * ROW + offset / 4u + i % VECTORS];
    }
    tile[i] = value;
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
  let key_count = last_row + 1u;
  let row0 = lane / COLUMN_GROUPS * RQ;
  let column = lane % COLUMN_GROUPS;

  var sums = array<array<vec4<f32>, RV>, RQ>();
  var rows: array<u32, RQ>;
  for (var r = 0u; r < RQ; r++) {
    rows[r] = min(first_row + row0 + r, last_row);
  }

  for (var k0 = documents[first_row] / BK * BK; k0 < key_count; k0 += BK) {
    stage(lane, k0, key_count, VALUE_OFFSET + kv_head * HEAD_DIM);
    workgroupBarrier();
    var d_weights = array<array<f32, RK>, RQ>();
    for (var v = 0u; v < VECTORS; v++) {
      for (var r = 0u; r < RQ; r++) {
        let slope = d_output[(rows[r] * HEADS + head) * VECTORS + v];
        for (var j = 0u; j < RK; j++) {
          d_weights[r][j] += dot(slope, tile[(column + j * COLUMN_GROUPS) * VECTORS + v]);
        }
      }
    }
    workgroupBarrier();

    stage(lane, k0, key_count, KEY_OFFSET + kv_head * HEAD_DIM);
    workgroupBarrier();
    var scores = array<array<f32, RK>, RQ>();
    for (var v = 0u; v < VECTORS; v++) {
      for (var r = 0u; r < RQ; r++) {
        let q = qkv[rows[r] * ROW + head * VECTORS + v];
        for (var j = 0u; j < RK; j++) {
          scores[r][j] += dot(q, tile[(column + j * COLUMN_GROUPS) * VECTORS + v]);
        }
      }
    }
    for (var r = 0u; r < RQ; r++) {
      let row = rows[r];
      let row_lse = lse[row * HEADS + head];
      let row_delta = delta[row * HEADS + head];
      for (var j = 0u; j < RK; j++) {
        let k = k0 + column + j * COLUMN_GROUPS;
        let visible = k >= documents[row] && k <= row;
        let weight = select(0.0, exp2((scores[r][j] * SCALE - row_lse) * LOG2_E), visible);
        d_scores[(row0 + r) * BK + column + j * COLUMN_GROUPS] = SCALE * weight * (d_weights[r][j] - row_delta);
      }
    }
    workgroupBarrier();

    for (var k = 0u; k < BK; k++) {
      var key: array<vec4<f32>, RV>;
      for (var i = 0u; i < RV; i++) {
        key[i] = tile[k * VECTORS + min(column + i * COLUMN_GROUPS, VECTORS - 1u)];
      }
      for (var r = 0u; r < RQ; r++) {
        let slope = d_scores[(row0 + r) * BK + k];
        for (var i = 0u; i < RV; i++) {
          sums[r][i] += slope * key[i];
        }
      }
    }
    workgroupBarrier();
  }

  for (var r = 0u; r < RQ; r++) {
    let row = first_row + row0 + r;
    if row <= last_row {
      for (var i = 0u; i < RV; i++) {
        let v = column + i * COLUMN_GROUPS;
        if v < VECTORS {
          d_qkv[row * ROW + head * VECTORS + v] = sums[r][i];
        }
      }
    }
  }
}
