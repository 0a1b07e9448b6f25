// The vector that a product by teams multiplies.
#if RANGES
#import lib/attention/decode_seen
#if NEW_KEY_APART
#import lib/attention/decode_score
#import lib/cache/key_row
#endif

#if NEW_KEY_APART
// The newest key and value beside the ranges of lib/matvec/team_input.wgsl: those have only the keys before it
// (05_attention_decode_qkv.wgsl). VECTORS is 2 to the power of VECTOR_STEPS, and no more than the narrowest subgroup: as many
// neighbours share the head's score.
#operand query: array<vec4<f32>>  // read  f32 [HEADS · HEAD_DIM]  the row's rotated query heads
#operand cache: array<vec4<f32>>  // read  f32 [rows, 2 · KV_HEADS · HEAD_DIM]

fn keys_in_ranges() -> u32 {
  let keys = seen_keys(0u);
  return keys.y - keys.x - 1u;
}

// WGSL does not say which indices a subgroup has.
fn merging_place(lane: u32) -> u32 {
  return subgroup_index * (WORKGROUP / subgroup_count) + subgroup_lane;
}

fn newest(head: u32, vector: u32) -> RangePart {
  let key = key_row(step.position) * CACHE_VECTORS + head / MEMBERS * VECTORS + vector;
  var score = dot(#query[head * VECTORS + vector], #cache[key]);
  let value = #cache[key + KV_HEADS * VECTORS];
  #unroll for (var s = 0u; s < VECTOR_STEPS; s++) {
    score += subgroupShuffleXor(score, 1u << s);
  }
  return RangePart(decode_score(score * SCORE_SCALE), 1.0, value);
}
#else
// No key apart from the ranges of lib/matvec/team_input.wgsl.
fn keys_in_ranges() -> u32 {
  let keys = seen_keys(0u);
  return keys.y - keys.x;
}

fn merging_place(lane: u32) -> u32 {
  return lane;
}

fn newest(head: u32, vector: u32) -> RangePart {
  return RangePart(MASKED, 0.0, vec4(0.0));
}
#endif

// The vector that a product by teams multiplies: a row of heads, put together from what ranges of keys have left
// (lib/attention/decode_partial.wgsl), and from a key apart, by each workgroup for
// itself. Ranges without keys hold anything, and are left out. Workgroup memory: 4 · K bytes.
#operand partials: array<vec4<f32>>  // read  f32 [K / HEAD_DIM, SPLITS, HEAD_DIM + 4]

var<workgroup> heads_row: array<vec4<f32>, K / 4u>;

// A weighted sum of values, the largest score and the sum of weights.
struct RangePart {
  largest: f32,
  total: f32,
  sum: vec4<f32>,
}

fn merged(head: u32, vector: u32, ranges: u32) -> vec4<f32> {
  let first = head * SPLITS * PARTIAL_VECTORS;
  var states: array<vec2<f32>, SPLITS>;
  var sums: array<vec4<f32>, SPLITS>;
  #unroll for (var s = 0u; s < SPLITS; s++) {
    states[s] = #partials[first + s * PARTIAL_VECTORS + VECTORS].xy;
    sums[s] = #partials[first + s * PARTIAL_VECTORS + vector];
  }
  let apart = newest(head, vector);
  var largest = apart.largest;
  #unroll for (var s = 0u; s < SPLITS; s++) {
    largest = max(largest, select(MASKED, states[s].x, s < ranges));
  }
  let weight = exp2(apart.largest - largest);
  var total = weight * apart.total;
  var sum = weight * apart.sum;
  #unroll for (var s = 0u; s < SPLITS; s++) {
    let weight = exp2(states[s].x - largest);
    total += select(0.0, weight * states[s].y, s < ranges);
    sum += select(vec4(0.0), weight * sums[s], s < ranges);
  }
  return sum / total;
}

fn begin(lane: u32) {
  let ranges = active_splits(keys_in_ranges());
  let place = merging_place(lane);
  // All go the same way: neighbours may share a score.
  for (var first = 0u; first < K / 4u; first += WORKGROUP) {
    let i = min(first + place, K / 4u - 1u);
    let vector = merged(i / VECTORS, i % VECTORS, ranges);
    if first + place < K / 4u {
      heads_row[i] = vector;
    }
  }
  workgroupBarrier();
}

fn factor(i: u32) -> vec4<f32> {
  return heads_row[i];
}
#else
#import lib/matvec/operands

fn begin(lane: u32) {}

fn factor(i: u32) -> vec4<f32> {
#if NORMED
  return fetch_a(0u, i) * fetch_norm(i);
#else
  return fetch_a(0u, i);
#endif
}
#endif

fn square(i: u32) -> f32 {
#if NORMED
  return dot(fetch_a(0u, i), fetch_a(0u, i));
#else
  return 0.0;
#endif
}
