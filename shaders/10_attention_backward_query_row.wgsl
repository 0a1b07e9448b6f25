// attention_backward_query with one invocation a query row and head, no workgroup memory and no
// barrier: for adapters that run on a CPU. Bindings and results are those of
// 10_attention_backward_query.wgsl.
//
// Grid: one invocation a row and head, heads fastest.
@group(0) @binding(0) var<storage, read> qkv: array<vec4<f32>>;
@group(0) @binding(1) var<storage, read> d_output: array<vec4<f32>>;
@group(0) @binding(2) var<storage, read> lse: array<f32>;
@group(0) @binding(3) var<storage, read> delta: array<f32>;
@group(0) @binding(4) var<storage, read> documents: array<u32>;
@group(0) @binding(5) var<storage, read_write> d_qkv: array<vec4<f32>>;
@group(0) @binding(6) var<uniform> step: Step;

const VECTORS: u32 = HEAD_DIM / 4u;
const ROW: u32 = STRIDE / 4u;

fn run(lane: u32, workgroup: vec3<u32>, workgroups: vec3<u32>) {
  let id = flat_id(lane, workgroup, workgroups);
  let row = id / HEADS;
  let head = id % HEADS;
  if row >= step.tokens {
    return;
  }
  let kv_head = head / (HEADS / KV_HEADS);
  let q = load_qkv(row * ROW + head * VECTORS);
  let slope = load_d_output(id * VECTORS);
  let row_lse = lse[id];
  let row_delta = delta[id];
  var sum = Head();
  for (var k = first_key(row); k <= last_key(row); k++) {
    let base = k * ROW + kv_head * VECTORS;
    let key = load_qkv(base + KEY_OFFSET / 4u);
    let d_weight = head_dot(slope, load_qkv(base + VALUE_OFFSET / 4u));
    let score = score_of(head_dot(q, key));
    let weight = exp(score - row_lse);
    sum = head_axpy(sum, score_slope(score) * weight * (d_weight - row_delta), key);
  }
  store_gradient(row * ROW + head * VECTORS, sum);
}
