// The vector that a product by teams multiplies: a row of heads, put together from what ranges of keys have left
// (lib/attention/decode_partial.wgsl), and from a key apart (lib/matvec/newest_key.wgsl), by each workgroup for
// itself. SUMS = 1. Ranges without keys hold anything, and are left out. Workgroup memory: 4 · K bytes.
//
//   0 partials  read  f32 [K / HEAD_DIM, SPLITS, HEAD_DIM + 4]
@group(0) @binding(0) var<storage, read> partials: array<vec4<f32>>;

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
    states[s] = partials[first + s * PARTIAL_VECTORS + VECTORS].xy;
    sums[s] = partials[first + s * PARTIAL_VECTORS + vector];
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

fn square(i: u32) -> f32 {
  return 0.0;
}

fn scale(sums: ptr<function, array<f32, SUMS>>) -> f32 {
  return 1.0;
}
