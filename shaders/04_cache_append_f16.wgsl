// cache_append_forward into a cache of f16, two elements per word.
//
// Two neighbours of which f16 cannot hold one, beyond ±65504, become NaN: the logits tell it, and none is wrong unseen.
// Grid: one invocation per vector of four elements.
#import lib/step
#import lib/flat
#import lib/cache/append
#import lib/finite

#operand qkv: array<vec4<f32>>    // read     f32 [tokens, STRIDE]             key and value heads from column KEY_OFFSET on
// cache: f16 [capacity, 2 · KV_HEADS · HEAD_DIM] rows of step.position … overwritten: lib/cache/append.wgsl
#operand cache: array<vec2<u32>>  // write
#operand step: Step               // uniform

fn pack(x: vec2<f32>) -> u32 {
  let most = max(abs(x.x), abs(x.y));
  let words = pack2x16float(clamp(x, vec2(-65504.0), vec2(65504.0)));
  return select(HALF_NOT_A_NUMBER, words, is_finite(x.x) && is_finite(x.y) && most <= 65504.0);
}

fn run(lane: u32, workgroup: vec3<u32>, workgroups: vec3<u32>) {
  let id = flat_id(lane, workgroup, workgroups);
  let t = id / CACHE_VECTORS;
  if t >= step.tokens {
    return;
  }
  let vector = id % CACHE_VECTORS;
  let x = #qkv[(t * STRIDE + KEY_OFFSET) / 4u + vector];
  #cache[appended_row(t) * CACHE_VECTORS + vector] = vec2(pack(x.xy), pack(x.zw));
}
