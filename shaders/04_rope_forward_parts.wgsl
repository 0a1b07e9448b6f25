// rope_forward, as 04_rope.wgsl, of rows of which a product split along K has left PARTS parts: adds them up in their
// order, turns queries and keys, and writes whole rows.
//
//   0 parts      read    f32 [PARTS, tokens, ROW_HEADS · HEAD_DIM]  PART_ROW vectors from one to the next
//   1 table      read    vec2 [positions, HEAD_DIM / 2]             (cos, sin), two to a vector
//   2 documents  read    u32 [tokens]                               start of each row's document
//   3 rows       write   f32 [tokens, ROW_HEADS · HEAD_DIM]         overwritten
//   4 step       uniform
//
// Grid: one invocation per two vectors of a row, half a head apart.
#import lib/step
#import lib/flat

fn gathered(head: u32, vector: u32) -> vec4<f32> {
  let i = head * VECTORS + vector;
  var sum = parts[i];
  #unroll for (var part = 1u; part < PARTS; part++) {
    sum += parts[part * PART_ROW + i];
  }
  return sum;
}
