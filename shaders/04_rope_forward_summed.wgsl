// rope_forward, as 04_rope.wgsl, by vectors of whole heads: rotates queries and keys, and writes whole rows. SUMMED: a product
// split along K has left PARTS parts of the rows, which are added up in their order. CACHED: keys and
// values are also appended to a cache in f32, as 04_cache_append.wgsl does.
//
// The first ROTATED_HEADS of each row rotate. Grid: one invocation per two vectors of a row, half a head apart.
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

fn run(lane: u32, workgroup: vec3<u32>, workgroups: vec3<u32>) {
  let id = flat_id(lane, workgroup, workgroups);
  let vector = id % HALF;
  let head = id / HALF; // of all rows
  let row = head / ROW_HEADS;
  if row >= step.tokens {
    return;
  }
  let first = head * VECTORS + vector;
  let second = first + HALF;
  // Forward is back with the halves swapped.
  var halves = array(summed(second), summed(first));
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
