// The gradients of attention on the fused rows of a batch:
//
//   0 qkv        read   f32 [tokens, STRIDE]           query heads | key heads | value heads
//   1 d_output   read   f32 [tokens, HEADS · HEAD_DIM]
//   2 lse        read   f32 [tokens, HEADS]            natural log
//   3 delta      read   f32 [tokens, HEADS]
//   4 documents  read   u32 [tokens], and for keys and values the ends behind them
//   5 gradient   write  f32 [tokens, STRIDE or D_STRIDE]  the kernel's own columns are overwritten
//   6 step       uniform
@group(0) @binding(0) var<storage, read> qkv: array<vec4<f32>>;
@group(0) @binding(1) var<storage, read> d_output: array<vec4<f32>>;
@group(0) @binding(2) var<storage, read> lse: array<f32>;
@group(0) @binding(3) var<storage, read> delta: array<f32>;
@group(0) @binding(4) var<storage, read> documents: array<u32>;
@group(0) @binding(5) var<storage, read_write> gradient: array<vec4<f32>>;
@group(0) @binding(6) var<uniform> step: Step;

fn load_query(item: u32, row: u32, head: u32, v: u32) -> vec4<f32> {
  return qkv[row * (STRIDE / 4u) + head * (HEAD_DIM / 4u) + v];
}

fn load_key(item: u32, row: u32, kv_head: u32, v: u32) -> vec4<f32> {
  return qkv[(row * STRIDE + KEY_OFFSET + kv_head * HEAD_DIM) / 4u + v];
}

fn load_value(item: u32, row: u32, kv_head: u32, v: u32) -> vec4<f32> {
  return qkv[(row * STRIDE + VALUE_OFFSET + kv_head * HEAD_DIM) / 4u + v];
}

fn load_d_output(item: u32, row: u32, head: u32, v: u32) -> vec4<f32> {
  return d_output[(row * HEADS + head) * (HEAD_DIM / 4u) + v];
}

fn load_lse(item: u32, row: u32, head: u32) -> f32 {
  return lse[row * HEADS + head];
}

fn load_delta(item: u32, row: u32, head: u32) -> f32 {
  return delta[row * HEADS + head];
}
