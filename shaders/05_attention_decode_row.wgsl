// attention_decode, attention_decode_split for adapters that run on a CPU: an invocation takes a
// query head and a range of keys, the head in named vectors, without workgroup memory or barriers.
//
//   0 query   read   f32 [HEADS · HEAD_DIM …]      the row's query heads come first
//   1 cache   read   [capacity, row]               key heads, then value heads; lib/cache_*.wgsl
//   2 output  write  f32 [HEADS · HEAD_DIM]        overwritten: lib/decode_whole.wgsl, or
//     partials       f32 [HEADS, SPLITS, HEAD_DIM + 4], active ranges: lib/decode_partial.wgsl
//   3 step    uniform                              the cache holds step.position + 1 rows, of which
//                                                  the query sees the last WINDOW
//
// Grid: HEADS · SPLITS invocations, the heads of a range side by side.
@group(0) @binding(0) var<storage, read> query: array<vec4<f32>>;
@group(0) @binding(3) var<uniform> step: Step;

const MASKED: f32 = -1e30;

fn run(lane: u32, workgroup: vec3<u32>, workgroups: vec3<u32>) {
  let id = flat_id(lane, workgroup, workgroups);
  let head = id % HEADS;
  let split = id / HEADS;
  if split >= SPLITS {
    return;
  }
  let kv_head = head / (HEADS / KV_HEADS);
  let range = decode_keys(split, step.position + 1u);
  if range.x >= range.y {
    return;
  }
  let q = head_scale(SCORE_SCALE, load_query(head * VECTORS));
  var largest = MASKED;
  var total = 0.0;
  var sum = Head();
  for (var k = range.x; k < range.y; k++) {
    let row = key_row(k);
    let product = head_dot(q, load_cache(row, kv_head * VECTORS)) * cache_scale(row, kv_head);
    let score = decode_score(product);
    if score > largest {
      let correction = exp2(largest - score);
      total *= correction;
      sum = head_scale(correction, sum);
      largest = score;
    }
    let weight = exp2(score - largest);
    total += weight;
    let value = load_cache(row, (KV_HEADS + kv_head) * VECTORS);
    sum = head_axpy(sum, weight * cache_scale(row, KV_HEADS + kv_head), value);
  }
  store_head(head, split, sum, largest, total);
}
