// cache_append_forward into a cache of signed bytes with a scale per row and head: the largest
// magnitude over 127.
//
// A head with a number that is not finite gets NaN as its scale.
// Grid: one invocation per vector of four elements; each finds its head's largest magnitude itself.
#import lib/step
#import lib/flat
#import lib/cache/append
#import lib/finite

#operand qkv: array<vec4<f32>>  // read     f32 [tokens, STRIDE]     key and value heads from column KEY_OFFSET on
// cache: [capacity, 2 · KV_HEADS · (VECTORS + 1)] words, rows of step.position … overwritten (lib/cache/append.wgsl): the
// bytes of key heads, value heads, then the heads' scales as f32
#operand cache: array<u32>      // write
#operand step: Step             // uniform

fn run(lane: u32, workgroup: vec3<u32>, workgroups: vec3<u32>) {
  let id = flat_id(lane, workgroup, workgroups);
  let t = id / CACHE_VECTORS;
  if t >= step.tokens {
    return;
  }
  let vector = id % CACHE_VECTORS;
  let head = vector / VECTORS;
  let first = (t * STRIDE + KEY_OFFSET) / 4u;
  var most = vec4(0.0);
  var finite = true;
  for (var v = 0u; v < VECTORS; v++) {
    let x = #qkv[first + head * VECTORS + v];
    most = max(most, abs(x));
    finite = finite && is_finite(x.x) && is_finite(x.y) && is_finite(x.z) && is_finite(x.w);
  }
  let largest = max(max(most.x, most.y), max(most.z, most.w));
  // Below this the reciprocal would overflow: such a head is zero.
  let vanishes = largest < 1e-30;
  let inverse = select(127.0 / largest, 0.0, vanishes);
  let scaled = clamp(round(#qkv[first + vector] * inverse), vec4(-127.0), vec4(127.0));
  let bytes = bitcast<vec4<u32>>(vec4<i32>(scaled)) & vec4(0xffu);
  let row = appended_row(t) * CACHE_ROW;
  #cache[row + vector] = bytes.x | (bytes.y << 8u) | (bytes.z << 16u) | (bytes.w << 24u);
  if vector % VECTORS == 0u {
    let scale = select(largest / 127.0, 0.0, vanishes);
    #cache[row + CACHE_VECTORS + head] = select(NOT_A_NUMBER, bitcast<u32>(scale), finite);
  }
}
