// attention_forward with one invocation a query row and head, no workgroup memory and no barrier:
// for adapters that run on a CPU. Bindings and results are those of 05_attention_forward.wgsl.
//
// Grid: one invocation a row and head, heads fastest.
@group(0) @binding(0) var<storage, read> query: array<vec4<f32>>;
@group(0) @binding(1) var<storage, read> keys: array<vec4<f32>>;
@group(0) @binding(2) var<storage, read> documents: array<u32>;
@group(0) @binding(3) var<storage, read_write> output: array<vec4<f32>>;
@group(0) @binding(4) var<storage, read_write> lse: array<f32>;
@group(0) @binding(5) var<uniform> step: Step;

const VECTORS: u32 = HEAD_DIM / 4u;

fn run(lane: u32, workgroup: vec3<u32>, workgroups: vec3<u32>) {
  let id = flat_id(lane, workgroup, workgroups);
  let row = id / HEADS;
  let head = id % HEADS;
  if row >= step.tokens {
    return;
  }
  let kv_head = head / (HEADS / KV_HEADS);
  let q = load_query((row * Q_STRIDE + head * HEAD_DIM) / 4u);
  var largest = -1e30;
  var total = 0.0;
  var sum = Head();
  for (var k = first_key(row); k <= last_key(row); k++) {
    let base = key_row(k) * (KV_STRIDE / 4u) + kv_head * VECTORS;
    let score = score_of(head_dot(q, load_keys(base + KEY_OFFSET / 4u)));
    let value = load_keys(base + VALUE_OFFSET / 4u);
    if score > largest {
      let correction = exp(largest - score);
      total *= correction;
      sum = head_scale(correction, sum);
      largest = score;
    }
    let weight = exp(score - largest);
    total += weight;
    sum = head_axpy(sum, weight, value);
  }
  total = max(total, 1e-30);
  store_output((row * HEADS + head) * VECTORS, head_scale(1.0 / total, sum));
  lse[row * HEADS + head] = largest + log(total);
}
