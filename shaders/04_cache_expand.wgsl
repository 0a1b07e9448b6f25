// cache_expand_forward: the rows of a packed key-value cache in f32, for kernels that read f32.
//
// Grid: fixed; invocations stride over the vectors of the rows that the cache holds, a run-time
// number.
#import lib/step
#import lib/flat
#import lib/cache/key_row
#import lib/cache/rows

// rows: f32 [cache rows, 2 · KV_HEADS · HEAD_DIM] those in use overwritten: lib/cache/key_row.wgsl
#binding rows: array<vec4<f32>>  // write
#binding step: Step              // uniform

fn run(lane: u32, workgroup: vec3<u32>, workgroups: vec3<u32>) {
  let count = rows_in_use(step.position + step.tokens) * CACHE_VECTORS;
  for (var i = workgroup.x * WORKGROUP + lane; i < count; i += WORKGROUP * workgroups.x) {
    let row = i / CACHE_VECTORS;
    let vector = i % CACHE_VECTORS;
    rows[i] = cache_scale(row, vector / VECTORS) * cache_vector(row, vector);
  }
}
