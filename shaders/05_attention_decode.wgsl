// attention_decode: one query row against the key-value cache, one workgroup a head.
//
//   0 query   read   f32 [HEADS · HEAD_DIM …]      the row's query heads come first
//   1 cache   read   f32 [capacity, KV_STRIDE]     key heads, then value heads from VALUE_OFFSET
//   2 output  write  f32 [HEADS · HEAD_DIM]        overwritten
//   3 step    uniform                              the cache holds step.position + 1 rows
//
// WORKGROUP keys a turn: an invocation scores one key; then SLICES invocations share each vector
// of the output, each over its part of the turn's keys, and meet at the end.
@group(0) @binding(0) var<storage, read> query: array<vec4<f32>>;
@group(0) @binding(1) var<storage, read> cache: array<vec4<f32>>;
@group(0) @binding(2) var<storage, read_write> output: array<vec4<f32>>;
@group(0) @binding(3) var<uniform> step: Step;

const VECTORS: u32 = HEAD_DIM / 4u;
const SLICES: u32 = WORKGROUP / VECTORS;
const ROW: u32 = KV_STRIDE / 4u;
const MASKED: f32 = -1e30;

var<workgroup> weights: array<f32, WORKGROUP>;
var<workgroup> slice_sums: array<vec4<f32>, WORKGROUP>;

fn run(lane: u32, workgroup: vec3<u32>, workgroups: vec3<u32>) {
  let head = workgroup.x;
  let kv_head = head / (HEADS / KV_HEADS);
  let key_count = step.position + 1u;
  let vector = lane % VECTORS;
  let slice = lane / VECTORS;

  var largest = MASKED;
  var total = 0.0;
  var sum = vec4(0.0);
  for (var k0 = 0u; k0 < key_count; k0 += WORKGROUP) {
    let key = k0 + lane;
    var score = MASKED;
    if key < key_count {
      var product = 0.0;
      for (var v = 0u; v < VECTORS; v++) {
        product += dot(query[head * VECTORS + v], cache[key * ROW + kv_head * VECTORS + v]);
      }
      score = product * SCALE;
    }
    let next = max(largest, reduce_max(lane, score));
    let correction = exp(largest - next);
    let weight = select(0.0, exp(score - next), key < key_count);
    weights[lane] = weight;
    total = total * correction + reduce_sum(lane, weight);
    largest = next;
    sum *= correction;
    if slice < SLICES {
      for (var i = slice; i < min(WORKGROUP, key_count - k0); i += SLICES) {
        sum += weights[i] * cache[(k0 + i) * ROW + VALUE_OFFSET / 4u + kv_head * VECTORS + vector];
      }
    }
    workgroupBarrier();
  }
  slice_sums[lane] = sum;
  workgroupBarrier();
  if lane < VECTORS {
    for (var i = 1u; i < SLICES; i++) {
      sum += slice_sums[lane + i * VECTORS];
    }
    output[head * VECTORS + lane] = sum / total;
  }
}
