// attention_decode_merge: the results of the ranges of attention_decode_split, put together. Merging
// is associative, and a range without weight changes nothing.
//
// Then for a cache
//   1 output    write  f32 [HEADS · HEAD_DIM]             overwritten
//   2 step      uniform                                   the cache holds step.position + 1 positions
//
// and for tensors
//   1 mask      read   u32                                the interval of keys of each batch item
//   2 output    write  [batch, HEADS, 1, HEAD_DIM]        overwritten, and so is
//   3 lse       write  f32 [batch, HEADS]                 natural log of Σ exp(score)
//   4 geometry  uniform                                   lib/attention/geometry.wgsl
//
// COLUMNS neighbours take neighbouring vectors, SLICES invocations per vector's ranges; these meet in
// a tree. Grid: x over the batch's heads, y over blocks of COLUMNS vectors. Workgroup memory: 32 bytes an
// invocation.
// partials: f32 [batch · HEADS, SPLITS, HEAD_DIM + 4] sum of values, largest score, sum of weights
#operand partials: array<vec4<f32>>  // read

const SLICES: u32 = WORKGROUP / COLUMNS;

struct Part {
  sum: vec4<f32>,
  largest: f32,
  total: f32,
}

var<workgroup> parts: array<Part, WORKGROUP>;

fn merge(a: Part, b: Part) -> Part {
  let largest = max(a.largest, b.largest);
  let x = exp2(a.largest - largest);
  let y = exp2(b.largest - largest);
  return Part(x * a.sum + y * b.sum, largest, x * a.total + y * b.total);
}

fn run(lane: u32, workgroup: vec3<u32>, workgroups: vec3<u32>) {
  let head = workgroup.x;
  let vector = workgroup.y * COLUMNS + lane % COLUMNS;
  let slice = lane / COLUMNS;
  let keys = seen_keys(head / HEADS);
  let ranges = active_splits(keys.y - keys.x);
  var part = Part(vec4(0.0), MASKED, 0.0);
  for (var s = slice; s < ranges; s += SLICES) {
    let place = (head * SPLITS + s) * PARTIAL_VECTORS;
    let state = #partials[place + VECTORS];
    part = merge(part, Part(#partials[place + vector], state.x, state.y));
  }
  if SLICES > 1u {
    parts[lane] = part;
    for (var half = SLICES / 2u; half > 0u; half /= 2u) {
      workgroupBarrier();
      if slice < half {
        part = merge(part, parts[lane + half * COLUMNS]);
        parts[lane] = part;
      }
    }
  }
  if slice == 0u {
    store_output(head, vector, part.sum, part.largest, part.total);
  }
}
