// attention_backward_key_value with one invocation a key row and owner, no workgroup
// memory and no barrier: for adapters that run on a CPU. Bindings and results are those of
// 10_attention_backward_key_value.wgsl.
//
// Grid: one invocation a row and owner (a group of MEMBERS query heads), owners fastest.
@group(0) @binding(0) var<storage, read> qkv: array<vec4<f32>>;
@group(0) @binding(1) var<storage, read> d_output: array<vec4<f32>>;
@group(0) @binding(2) var<storage, read> lse: array<f32>;
@group(0) @binding(3) var<storage, read> delta: array<f32>;
@group(0) @binding(4) var<storage, read> documents: array<u32>;
@group(0) @binding(5) var<storage, read_write> d_keys: array<vec4<f32>>;
@group(0) @binding(6) var<uniform> step: Step;

const VECTORS: u32 = HEAD_DIM / 4u;
const ROW: u32 = STRIDE / 4u;
const OWNERS: u32 = HEADS / MEMBERS;

fn run(lane: u32, workgroup: vec3<u32>, workgroups: vec3<u32>) {
  let id = flat_id(lane, workgroup, workgroups);
  let row = id / OWNERS;
  let owner = id % OWNERS;
  let kv_head = owner * MEMBERS / (HEADS / KV_HEADS);
  if row >= step.tokens {
    return;
  }
  let base = row * ROW + kv_head * VECTORS;
  let key = load_qkv(base + KEY_OFFSET / 4u);
  let value = load_qkv(base + VALUE_OFFSET / 4u);
  var d_key = Head();
  var d_value = Head();
  let end = query_end(row, documents[DOCUMENT_ENDS + row]);
  for (var head = owner * MEMBERS; head < (owner + 1u) * MEMBERS; head++) {
    for (var q = row; q < end; q++) {
      let query = load_qkv(q * ROW + head * VECTORS);
      let slope = load_d_output((q * HEADS + head) * VECTORS);
      let score = score_of(head_dot(query, key));
      let weight = exp(score - lse[q * HEADS + head]);
      let d_score = score_slope(score) * weight * (head_dot(slope, value) - delta[q * HEADS + head]);
      d_value = head_axpy(d_value, weight, slope);
      d_key = head_axpy(d_key, d_score, query);
    }
  }
  let at = row * (D_STRIDE / 4u) + owner * VECTORS;
  store_gradient(at + D_KEY_OFFSET / 4u, d_key);
  store_gradient(at + D_VALUE_OFFSET / 4u, d_value);
}
