// rope_forward, as 04_rope.wgsl, by vectors of whole heads: rotates queries and keys, and writes whole rows. SUMMED: a product
// split along K has left PARTS parts of the rows, which are added up in their order. NORMED: each query and key head is
// normed before it rotates, as 02_head_norm_forward.wgsl does. CACHED: keys and values are also appended to a cache in
// f32, as 04_cache_append.wgsl does.
//
// The first ROTATED_HEADS of each row rotate. Grid: one invocation per two vectors of a row, half a head apart. NORMED:
// a workgroup has whole heads, so HALF divides WORKGROUP.
#import lib/step
#import lib/flat
#import lib/rotate

#binding documents: array<u32>    // read        u32 [tokens]                          start of each row's document
#binding rows: array<vec4<f32>>   // read_write  f32 [tokens, ROW_HEADS · HEAD_DIM]    SUMMED: overwritten
#binding step: Step               // uniform
#if SUMMED
// parts: f32 [PARTS, tokens, ROW_HEADS · HEAD_DIM] PART_ROW vectors from one to the next
#binding parts: array<vec4<f32>>  // read
#endif
#if NORMED
#import lib/vector
#import lib/norm_weight

// weight: f32 [2, HEAD_DIM] of queries, of keys
#binding weight: array<vec4<f32>> // read

var<workgroup> squares: array<f32, WORKGROUP>;
#endif
#if CACHED
#import lib/cache/key_row

// cache: f32 [rows, (ROW_HEADS - QUERY_HEADS) · HEAD_DIM]  rows from step.position on overwritten
#binding cache: array<vec4<f32>>  // read_write
#endif

fn summed(i: u32) -> vec4<f32> {
#if SUMMED
  var sum = parts[i];
  #unroll for (var part = 1u; part < PARTS; part++) {
    sum += parts[part * PART_ROW + i];
  }
  return sum;
#else
  return rows[i];
#endif
}

#if NORMED
// The halves of a head, each divided by the head's root mean square and multiplied by the weight. In uniform control flow.
fn normed(lane: u32, head: u32, vector: u32, halves: array<vec4<f32>, 2>) -> array<vec4<f32>, 2> {
  squares[lane] = dot(halves[0], halves[0]) + dot(halves[1], halves[1]);
  workgroupBarrier();
  var sum = 0.0;
  for (var i = 0u; i < HALF; i++) {
    sum += squares[lane / HALF * HALF + i];
  }
  if head >= ROTATED_HEADS {
    return halves;
  }
  let scale = inverseSqrt(sum / f32(HEAD_DIM) + EPSILON);
  let own = select(0u, VECTORS, head >= QUERY_HEADS) + vector;
  return array(halves[0] * scale * weight_of(weight[own + HALF]), halves[1] * scale * weight_of(weight[own]));
}
#endif

fn run(lane: u32, workgroup: vec3<u32>, workgroups: vec3<u32>) {
  let id = flat_id(lane, workgroup, workgroups);
  let vector = id % HALF;
  let head = id / HALF; // of all rows
  let row = head / ROW_HEADS;
  let first = head * VECTORS + vector;
  let second = first + HALF;
  // Forward is back with the halves swapped.
  var halves = array<vec4<f32>, 2>();
  if row < step.tokens {
    halves = array(summed(second), summed(first));
  }
#if NORMED
  halves = normed(lane, head % ROW_HEADS, vector, halves);
#endif
  if row >= step.tokens {
    return;
  }
  if head % ROW_HEADS < ROTATED_HEADS {
    halves = rotated_back(row, 4u * vector, halves[0], halves[1]);
  }
  rows[second] = halves[0];
  rows[first] = halves[1];
#if CACHED
  if head % ROW_HEADS >= QUERY_HEADS {
    let cached = head % ROW_HEADS - QUERY_HEADS;
    let at = (key_row(step.position + row) * (ROW_HEADS - QUERY_HEADS) + cached) * VECTORS + vector;
    cache[at + HALF] = halves[0];
    cache[at] = halves[1];
  }
#endif
}
