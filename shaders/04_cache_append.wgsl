// cache_append_forward: the (rotated) key and the value heads of each row, after the rows that the cache already holds.
//
//   0 qkv        read     f32 [tokens, STRIDE]   key and value heads from column KEY_OFFSET on
//   1 cache      write    [cache rows, row]      rows overwritten: lib/cache/rows.wgsl
//   2 step       uniform
//   3 documents  read     u32 [tokens]           with BATCHED
//
// Two neighbours of which f16 cannot hold one, beyond ±65504, become NaN: the logits tell it, and none is wrong unseen.
// Signed bytes have a scale per row and head, the largest magnitude over 127: of a head with a number that is not finite
// it is NaN.
// Grid: one invocation per vector of four elements; of bytes each finds its head's largest magnitude itself.
#import lib/step
#import lib/flat
#import lib/finite
#import lib/cache/key_row

#operand qkv: array<vec4<f32>>
#operand step: Step
#if CACHE_F16
#operand cache: array<vec2<u32>>
#elif CACHE_INT8
#operand cache: array<u32>
#else
#operand cache: array<vec4<f32>>
#endif
#if BATCHED
#operand documents: array<u32>
#endif

fn appended_row(t: u32) -> u32 {
#if BATCHED
  // Row t is of a text of its own, whose rows of the cache begin step.reserved.x rows behind those of the text
  // before; where that is 0, all rows are of one text. Its position is t - documents[t], which wraps.
  return t * step.reserved.x + key_row(t - #documents[t]);
#else
  // Rows of a text go behind those that the cache holds.
  return key_row(step.position + t);
#endif
}

#if CACHE_F16
fn pack(x: vec2<f32>) -> u32 {
  let most = max(abs(x.x), abs(x.y));
  let words = pack2x16float(clamp(x, vec2(-65504.0), vec2(65504.0)));
  return select(HALF_NOT_A_NUMBER, words, is_finite(x.x) && is_finite(x.y) && most <= 65504.0);
}
#endif

fn run(lane: u32, workgroup: vec3<u32>, workgroups: vec3<u32>) {
  let id = flat_id(lane, workgroup, workgroups);
  let t = id / CACHE_VECTORS;
  if t >= step.tokens {
    return;
  }
  let vector = id % CACHE_VECTORS;
  let first = (t * STRIDE + KEY_OFFSET) / 4u;
  let x = #qkv[first + vector];
#if CACHE_F16
  #cache[appended_row(t) * CACHE_VECTORS + vector] = vec2(pack(x.xy), pack(x.zw));
#elif CACHE_INT8
  let head = vector / VECTORS;
  var most = vec4(0.0);
  var finite = true;
  for (var v = 0u; v < VECTORS; v++) {
    let y = #qkv[first + head * VECTORS + v];
    most = max(most, abs(y));
    finite = finite && is_finite(y.x) && is_finite(y.y) && is_finite(y.z) && is_finite(y.w);
  }
  let largest = max(max(most.x, most.y), max(most.z, most.w));
  // Below this the reciprocal would overflow: such a head is zero.
  let vanishes = largest < 1e-30;
  let inverse = select(127.0 / largest, 0.0, vanishes);
  let scaled = clamp(round(x * inverse), vec4(-127.0), vec4(127.0));
  let bytes = bitcast<vec4<u32>>(vec4<i32>(scaled)) & vec4(0xffu);
  let row = appended_row(t) * CACHE_ROW;
  #cache[row + vector] = bytes.x | (bytes.y << 8u) | (bytes.z << 16u) | (bytes.w << 24u);
  if vector % VECTORS == 0u {
    let scale = select(largest / 127.0, 0.0, vanishes);
    #cache[row + CACHE_VECTORS + head] = select(NOT_A_NUMBER, bitcast<u32>(scale), finite);
  }
#else
  #cache[appended_row(t) * CACHE_VECTORS + vector] = x;
#endif
}
