// The vector that a product by teams multiplies: a row of heads, put together from what ranges of keys have left
// (lib/attention/decode_partial.wgsl), by each workgroup for itself. SUMS = 1. Ranges without keys hold
// anything, and are left out. Workgroup memory: 4 · K bytes.
//
//   0 partials  read  f32 [K / HEAD_DIM, SPLITS, HEAD_DIM + 4]
@group(0) @binding(0) var<storage, read> partials: array<vec4<f32>>;

var<workgroup> heads_row: array<vec4<f32>, K / 4u>;

fn merged(first: u32, vector: u32, ranges: u32) -> vec4<f32> {
  var states: array<vec2<f32>, SPLITS>;
  var sums: array<vec4<f32>, SPLITS>;
  for (var s = 0u; s < SPLITS; s++) {
    states[s] = partials[first + s * PARTIAL_VECTORS + VECTORS].xy;
    sums[s] = partials[first + s * PARTIAL_VECTORS + vector];
  }
  var largest = MASKED;
  for (var s = 0u; s < SPLITS; s++) {
    largest = max(largest, select(MASKED, states[s].x, s < ranges));
  }
  var total = 0.0;
  var sum = vec4(0.0);
  for (var s = 0u; s < SPLITS; s++) {
    let weight = exp2(states[s].x - largest);
    total += select(0.0, weight * states[s].y, s < ranges);
    sum += select(vec4(0.0), weight * sums[s], s < ranges);
  }
  return sum / total;
}

fn begin(lane: u32) {
  let keys = seen_keys(0u);
  let ranges = active_splits(keys.y - keys.x);
  for (var i = lane; i < K / 4u; i += WORKGROUP) {
    heads_row[i] = merged(i / VECTORS * SPLITS * PARTIAL_VECTORS, i % VECTORS, ranges);
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
