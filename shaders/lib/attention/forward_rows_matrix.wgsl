// attention_forward by matrices on the fused rows of a batch, in f32 or f16 (kernels/attention/matrix.rs):
//
//   0 query      read   [tokens, Q_STRIDE]         head h at column h · HEAD_DIM
//   1 keys       read   [tokens, KV_STRIDE]        heads from KEY_OFFSET, values from VALUE_OFFSET
//   2 documents  read   u32 [tokens]               first key that each query may see
//   3 output     write  [tokens, HEADS · HEAD_DIM] overwritten
//   4 lse        write  f32 [tokens, HEADS]        overwritten
//   5 step       uniform
@group(0) @binding(0) var<storage, read> query: array<qkvQuad>;
@group(0) @binding(1) var<storage, read> keys: array<qkvQuad>;
@group(0) @binding(2) var<storage, read> documents: array<u32>;
@group(0) @binding(3) var<storage, read_write> output: array<outputQuad>;
@group(0) @binding(4) var<storage, read_write> lse: array<f32>;
@group(0) @binding(5) var<uniform> step: Step;

fn load_query(row: u32, head: u32, v: u32) -> qkvQuad {
  return query[(row * Q_STRIDE + head * HEAD_DIM) / 4u + v];
}

fn load_key(row: u32, kv_head: u32, v: u32) -> qkvQuad {
  return keys[(row * KV_STRIDE + KEY_OFFSET + kv_head * HEAD_DIM) / 4u + v];
}

fn load_value(row: u32, kv_head: u32, v: u32) -> qkvQuad {
  return keys[(row * KV_STRIDE + VALUE_OFFSET + kv_head * HEAD_DIM) / 4u + v];
}

fn store_output(row: u32, head: u32, v: u32, x: vec4<f32>) {
  output[(row * HEADS + head) * VECTORS + v] = output_quad(x);
}

fn store_lse(row: u32, head: u32, x: f32) {
  lse[row * HEADS + head] = x;
}
