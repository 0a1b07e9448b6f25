// attention_forward on the fused rows of a batch, keys from the rows themselves or from the cache:
//
//   0 query      read   f32 [tokens, Q_STRIDE]         head h at column h · HEAD_DIM
//   1 keys       read   f32 [keys, KV_STRIDE]          heads from KEY_OFFSET, values from VALUE_OFFSET,
//                                                  rows where lib/cache/key_row.wgsl says
//   2 documents  read   u32 [tokens]                   first key that each query may see
//   3 output     write  f32 [tokens, HEADS · HEAD_DIM] overwritten
//   4 lse        write  f32 [tokens, HEADS]            overwritten
//   5 step       uniform
@group(0) @binding(0) var<storage, read> query: array<vec4<f32>>;
@group(0) @binding(1) var<storage, read> keys: array<vec4<f32>>;
@group(0) @binding(2) var<storage, read> documents: array<u32>;
@group(0) @binding(3) var<storage, read_write> output: array<vec4<f32>>;
@group(0) @binding(4) var<storage, read_write> lse: array<f32>;
@group(0) @binding(5) var<uniform> step: Step;

fn load_query(item: u32, row: u32, head: u32, v: u32) -> vec4<f32> {
  return query[(row * Q_STRIDE + head * HEAD_DIM) / 4u + v];
}

fn load_key(item: u32, row: u32, kv_head: u32, v: u32) -> vec4<f32> {
  return keys[(key_row(row) * KV_STRIDE + KEY_OFFSET + kv_head * HEAD_DIM) / 4u + v];
}

fn load_value(item: u32, row: u32, kv_head: u32, v: u32) -> vec4<f32> {
  return keys[(key_row(row) * KV_STRIDE + VALUE_OFFSET + kv_head * HEAD_DIM) / 4u + v];
}

fn store_output(item: u32, row: u32, head: u32, v: u32, x: vec4<f32>) {
  output[(row * HEADS + head) * (HEAD_DIM / 4u) + v] = x;
}

fn store_lse(item: u32, row: u32, head: u32, x: f32) {
  lse[row * HEADS + head] = x;
}
