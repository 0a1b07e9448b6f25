// attention_forward: causal grouped-query attention within documents, with online softmax
// (Dao, "FlashAttention-2", arXiv:2307.08691; Milakov and Gimelshein, arXiv:1805.02867).
//
//   0 query      read   f32 [tokens, Q_STRIDE]         head h at column h · HEAD_DIM
//   1 keys       read   f32 [keys, KV_STRIDE]          heads from KEY_OFFSET, values from VALUE_OFFSET
//   2 documents  read   u32 [tokens]                   first key that each query may see
//   3 output     write  f32 [tokens, HEADS · HEAD_DIM] overwritten
//   4 lse        write  f32 [tokens, HEADS]            overwritten: natural log of Σ exp(score)
//   5 step       uniform
//
// Query t sees the keys documents[t] … step.position + t. Scores are kept in base 2: the scale and
// log2(e) are folded into the query. Key tiles before the first document of the query tile and
// after its last query are skipped.
// Grid: x over query tiles of BQ, y over heads. Workgroup memory: 4 · (BK · HEAD_DIM + BQ · (BK +
// COLUMN_GROUPS)) bytes. BQ is a multiple of ROW_GROUPS, BK of WORKGROUP / ROW_GROUPS.
@group(0) @binding(0) var<storage, read> query: array<vec4<f32>>;
@group(0) @binding(1) var<storage, read> keys: array<vec4<f32>>;
@group(0) @binding(2) var<storage, read> documents: array<u32>;
@group(0) @binding(3) var<storage, read_write> output: array<vec4<f32>>;
@group(0) @binding(4) var<storage, read_write> lse: array<f32>;
@group(0) @binding(5) var<uniform> step: Step;

var<workgroup> tile: array<vec4<f32>, BK * VECTORS>;
var<workgroup> weights: array<f32, BQ * BK>;
var<workgroup> row_max: array<f32, BQ * COLUMN_GROUPS>;

fn stage(lane: u32, first_key: u32, key_count: u32, offset: u32) {
  for (var i = lane; i < BK * VECTORS; i += WORKGROUP) {
    let key = first_key + i / VECTORS;
    var value = vec4(0.0);
    if key < key_count {
      value = keys[(key * KV_STRIDE + offset) / 4u + i % VECTORS];
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
  let key_count = step.position + last_row + 1u;
  let row0 = lane / COLUMN_GROUPS * RQ;
  let column = lane % COLUMN_GROUPS;

  var sums = array<array<vec4<f32>, RV>, RQ>();
  var largest: array<f32, RQ>;
  var totals: array<f32, RQ>;
  var starts: array<u32, RQ>;
  var bases: array<u32, RQ>;
  for (var r = 0u; r < RQ; r++) {
    let row = min(first_row + row0 + r, last_row);
    largest[r] = MASKED;
    totals[r] = 0.0;
    starts[r] = documents[row];
    bases[r] = (row * Q_STRIDE + head * HEAD_DIM) / 4u;
  }

  for (var k0 = documents[first_row] / BK * BK; k0 < key_count; k0 += BK) {
    stage(lane, k0, key_count, KEY_OFFSET + kv_head * HEAD_DIM);
    workgroupBarrier();
    var scores = array<array<f32, RK>, RQ>();
    for (var v = 0u; v < VECTORS; v++) {
      var key: array<vec4<f32>, RK>;
      for (var j = 0u; j < RK; j++) {
        key[j] = tile[(column + j * COLUMN_GROUPS) * VECTORS + v];
      }
      for (var r = 0u; r < RQ; r++) {
        let q = query[bases[r] + v];
        for (var j = 0u; j < RK; j++) {
          scores[r][j] += dot(q, key[j]);
        }
      }
    }
    for (var r = 0u; r < RQ; r++) {
      let end = step.position + first_row + row0 + r;
      var best = MASKED;
      for (var j = 0u; j < RK; j++) {
        let k = k0 + column + j * COLUMN_GROUPS;
        let visible = k >= starts[r] && k <= end && k < key_count;
        scores[r][j] = select(MASKED, scores[r][j] * (SCALE * LOG2_E), visible);
        best = max(best, scores[r][j]);
      }
      row_max[(row0 + r) * COLUMN_GROUPS + column] = best;
    }
    workgroupBarrier();

    stage(lane, k0, key_count, VALUE_OFFSET + kv_head * HEAD_DIM);
    for (var r = 0u; r < RQ; r++) {
      var next = largest[r];
      for (var i = 0u; i < COLUMN_GROUPS; i++) {
        next = max(next, row_max[(row0 + r) * COLUMN_GROUPS + i]);
      }
      let correction = exp2(largest[r] - next);
      largest[r] = next;
      totals[r] *= correction;
      for (var i = 0u; i < RV; i++) {
        sums[r][i] *= correction;
      }
      for (var j = 0u; j < RK; j++) {
        let weight = select(0.0, exp2(scores[r][j] - next), scores[r][j] > UNMASKED);
        weights[(row0 + r) * BK + column + j * COLUMN_GROUPS] = weight;
      }
    }
    workgroupBarrier();

    for (var k = 0u; k < BK; k++) {
      var value: array<vec4<f32>, RV>;
      for (var i = 0u; i < RV; i++) {
        value[i] = tile[k * VECTORS + min(column + i * COLUMN_GROUPS, VECTORS - 1u)];
      }
      for (var r = 0u; r < RQ; r++) {
        let weight = weights[(row0 + r) * BK + k];
        totals[r] += weight;
        for (var i = 0u; i < RV; i++) {
          sums[r][i] += weight * value[i];
        }
      }
    }
    workgroupBarrier();
  }

  for (var r = 0u; r < RQ; r++) {
    let row = first_row + row0 + r;
    if row <= last_row {
      let total = max(totals[r], 1e-30);
      for (var i = 0u; i < RV; i++) {
        let v = column + i * COLUMN_GROUPS;
        if v < VECTORS {
          output[(row * HEADS + head) * VECTORS + v] = sums[r][i] / total;
        }
      }
      if column == 0u {
        lse[row * HEADS + head] = largest[r] * LN_2 + log(total);
      }
    }
  }
}
