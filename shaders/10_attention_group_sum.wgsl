// attention_group_sum: adds up the gradients of keys and values that each query head of a group has
// left on its own, in the order of the heads.
//
// Grid: one invocation per vector of a row's key and value columns.
//
// Where the gradients are ROTATED, rope_backward behind it, as 04_rope.wgsl, of keys, and of queries where they lie:
// Grid: one invocation per two vectors of a row, half a head apart.
#import lib/step
#import lib/flat

#binding parts: array<vec4<f32>>  // read  f32 [tokens, 2 · HEADS · HEAD_DIM]  keys by query head | values by query head

// A vector of a row's key or value head; key heads come before value heads.
fn of_group(row: u32, kv_head: u32, vector: u32) -> vec4<f32> {
  let part = (row * 2u * HEADS + kv_head * MEMBERS) * VECTORS + vector;
  var sum = parts[part];
  for (var member = 1u; member < MEMBERS; member++) {
    sum += parts[part + member * VECTORS];
  }
  return sum;
}

#if ROTATED
#import lib/rotate

#binding documents: array<u32>   // read        u32 [tokens]                          start of each row's document
// rows: f32 [tokens, ROW_HEADS · HEAD_DIM] queries are rotated, keys and values overwritten
#binding rows: array<vec4<f32>>  // read_write
#binding step: Step              // uniform

// A vector of a head of all rows.
fn gathered(head: u32, vector: u32) -> vec4<f32> {
  let of_row = head % ROW_HEADS;
  if of_row < HEADS {
    return rows[head * VECTORS + vector];
  }
  return of_group(head / ROW_HEADS, of_row - HEADS, vector);
}

fn run(lane: u32, workgroup: vec3<u32>, workgroups: vec3<u32>) {
  let id = flat_id(lane, workgroup, workgroups);
  let vector = id % HALF;
  let head = id / HALF; // of all rows
  let row = head / ROW_HEADS;
  if row >= step.tokens {
    return;
  }
  var halves = array(gathered(head, vector), gathered(head, HALF + vector));
  if head % ROW_HEADS < ROTATED_HEADS {
    halves = rotated_back(row, 4u * vector, halves[0], halves[1]);
  }
  rows[head * VECTORS + vector] = halves[0];
  rows[head * VECTORS + HALF + vector] = halves[1];
}
#else
#import lib/quad

#binding d_qkv: array<Quad>  // write    f32 or f16 [tokens, STRIDE]         the key and value columns are overwritten
#binding step: Step          // uniform

fn run(lane: u32, workgroup: vec3<u32>, workgroups: vec3<u32>) {
  let id = flat_id(lane, workgroup, workgroups);
  let row = id / KV_VECTORS;
  if row >= step.tokens {
    return;
  }
  let sum = of_group(row, id % KV_VECTORS / VECTORS, id % VECTORS);
  d_qkv[(row * STRIDE + KEY_OFFSET) / 4u + id % KV_VECTORS] = pack_quad(sum);
}
#endif
