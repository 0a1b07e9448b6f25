// attention_group_sum: adds up the gradients of keys and values that each query head of a group has
// left on its own, in the order of the heads.
//
//   0 parts  read   f32 [tokens, 2 · HEADS · HEAD_DIM]  keys by query head | values by query head
//   1 d_qkv  write  f32 or f16 [tokens, STRIDE]         the key and value columns are overwritten
//   2 step   uniform
//
// Grid: one invocation per vector of a row's key and value columns.
#import lib/step
#import lib/flat

@group(0) @binding(0) var<storage, read> parts: array<vec4<f32>>;
@group(0) @binding(1) var<storage, read_write> d_qkv: array<Quad>;
@group(0) @binding(2) var<uniform> step: Step;

fn run(lane: u32, workgroup: vec3<u32>, workgroups: vec3<u32>) {
  let id = flat_id(lane, workgroup, workgroups);
  let row = id / KV_VECTORS;
  if row >= step.tokens {
    return;
  }
  let sum = of_group(row, id % KV_VECTORS / VECTORS, id % VECTORS);
  d_qkv[(row * STRIDE + KEY_OFFSET) / 4u + id % KV_VECTORS] = pack_quad(sum);
}
