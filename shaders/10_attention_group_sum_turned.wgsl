// attention_group_sum, as 10_attention_group_sum.wgsl, and rope_backward behind it, as 04_rope.wgsl: also turns the
// gradients of keys, and those of queries where they lie.
//
//   0 parts      read        f32 [tokens, 2 · HEADS · HEAD_DIM]  keys by query head | values by query head
//   1 table      read        vec2 [positions, HEAD_DIM / 2]      (cos, sin), two to a vector
//   2 documents  read        u32 [tokens]                        start of each row's document
//   3 rows       read_write  f32 [tokens, ROW_HEADS · HEAD_DIM]  queries are turned, keys and values overwritten
//   4 step       uniform
//
// Grid: one invocation per two vectors of a row, half a head apart.
#import lib/step
#import lib/flat

fn gathered(head: u32, vector: u32) -> vec4<f32> {
  let of_row = head % ROW_HEADS;
  if of_row < HEADS {
    return rows[head * VECTORS + vector];
  }
  return of_group(head / ROW_HEADS, of_row - HEADS, vector);
}
