// cache_append_forward: copies the (rotated) key and the value heads of each row behind the rows
// that the cache already holds.
//
// Grid: one invocation per element of [tokens, CACHE_STRIDE].
#import lib/step
#import lib/flat
#import lib/cache/append

#operand qkv: array<f32>    // read     f32 [tokens, STRIDE]         key and value heads from column KEY_OFFSET on
// cache: f32 [capacity, CACHE_STRIDE] rows of step.position … overwritten: lib/cache/append.wgsl
#operand cache: array<f32>  // write
#operand step: Step         // uniform

fn run(lane: u32, workgroup: vec3<u32>, workgroups: vec3<u32>) {
  let id = flat_id(lane, workgroup, workgroups);
  let t = id / CACHE_STRIDE;
  let column = id % CACHE_STRIDE;
  if t < step.tokens {
    #cache[appended_row(t) * CACHE_STRIDE + column] = #qkv[t * STRIDE + KEY_OFFSET + column];
  }
}
