// What the tiled and the row forms of attention read and write: a pass is FORWARD, of a QUERY or of a KEY_VALUE.
//
// Fused rows of a batch, f32; forward, keys come from the rows themselves or from the cache:
//
//   0 query      read   [tokens, Q_STRIDE]         head h at column h · HEAD_DIM
//   1 keys       read   [keys, KV_STRIDE]          heads from KEY_OFFSET, values from VALUE_OFFSET,
//                                                  rows where lib/cache/key_row.wgsl says
//   2 documents  read   u32 [tokens]               first key that each query may see
//   3 output     write  [tokens, HEADS · HEAD_DIM] overwritten
//   4 lse        write  [tokens, HEADS]            natural log; overwritten
//   5 step       uniform
//
// and backward:
//
//   0 qkv        read   [tokens, STRIDE]           query heads | key heads | value heads
//   1 d_output   read   [tokens, HEADS · HEAD_DIM]
//   2 lse        read   [tokens, HEADS]
//   3 delta      read   [tokens, HEADS]
//   4 documents  read   u32 [tokens], and for keys and values the ends behind them
//   5 gradient   write  [tokens, STRIDE or D_STRIDE]  the kernel's own columns are overwritten
//   6 step       uniform
//
// TENSORS of any strides (lib/attention/geometry.wgsl), f32 or F16:
//
//   0 query      read   [batch, HEADS, query rows, HEAD_DIM]
//   1 keys       read   [batch, KV_HEADS, key rows, HEAD_DIM]
//   2 values     read   as keys
//
// forward:
//
//   3 mask       read   u32: intervals, then the dense part
//   4 output     write  as query, strides of its own; overwritten
//   5 lse        write  f32 [batch, HEADS, query rows]; overwritten
//   6 geometry   uniform
//
// and backward:
//
//   3 d_output   read   as query
//   4 statistics read   vec2<f32> [batch, HEADS, query rows]  logsumexp, delta
//   5 mask       read
//   6 d_query    write  as query; or d_key and d_value as keys; strides of their own, overwritten
//   7 geometry   uniform, behind these
//
// Behind them the range of lib/attention/dropout.wgsl.
#import lib/attention/mask
#import lib/attention/dropout

#if TENSORS
#import lib/quad

@group(0) @binding(0) var<storage, read> query: array<Quad>;
@group(0) @binding(1) var<storage, read> keys: array<Quad>;
@group(0) @binding(2) var<storage, read> values: array<Quad>;

fn load_query(item: u32, row: u32, head: u32, v: u32) -> vec4<f32> {
  return unpack_quad(query[row_at(geometry.query, item, head, row) + v]);
}

fn load_key(item: u32, row: u32, kv_head: u32, v: u32) -> vec4<f32> {
  return unpack_quad(keys[row_at(geometry.key, item, kv_head, row) + v]);
}

fn load_value(item: u32, row: u32, kv_head: u32, v: u32) -> vec4<f32> {
  return unpack_quad(values[row_at(geometry.value, item, kv_head, row) + v]);
}

#if FORWARD
@group(0) @binding(3) var<storage, read> mask: array<u32>;
@group(0) @binding(4) var<storage, read_write> output: array<Quad>;
@group(0) @binding(5) var<storage, read_write> lse: array<f32>;
@group(0) @binding(6) var<uniform> geometry: Geometry;

fn store_output(item: u32, row: u32, head: u32, v: u32, x: vec4<f32>) {
  output[row_at(geometry.output, item, head, row) + v] = pack_quad(x);
}

fn store_lse(item: u32, row: u32, head: u32, x: f32) {
  lse[(item * HEADS + head) * geometry.query_rows + row] = x;
}
#else
@group(0) @binding(3) var<storage, read> d_output: array<Quad>;
@group(0) @binding(4) var<storage, read> statistics: array<vec2<f32>>;
@group(0) @binding(5) var<storage, read> mask: array<u32>;

fn load_d_output(item: u32, row: u32, head: u32, v: u32) -> vec4<f32> {
  return unpack_quad(d_output[row_at(geometry.d_output, item, head, row) + v]);
}

fn load_lse(item: u32, row: u32, head: u32) -> f32 {
  return statistics[(item * HEADS + head) * geometry.query_rows + row].x;
}

fn load_delta(item: u32, row: u32, head: u32) -> f32 {
  return statistics[(item * HEADS + head) * geometry.query_rows + row].y;
}
#endif

#if QUERY
@group(0) @binding(6) var<storage, read_write> d_query: array<Quad>;
@group(0) @binding(7) var<uniform> geometry: Geometry;

fn store_d_query(item: u32, row: u32, head: u32, v: u32, x: vec4<f32>) {
  d_query[row_at(geometry.d_query, item, head, row) + v] = pack_quad(x);
}
#elif KEY_VALUE
@group(0) @binding(6) var<storage, read_write> d_key: array<Quad>;
@group(0) @binding(7) var<storage, read_write> d_value: array<Quad>;
@group(0) @binding(8) var<uniform> geometry: Geometry;

fn store_d_key(item: u32, row: u32, kv_head: u32, v: u32, x: vec4<f32>) {
  d_key[row_at(geometry.d_key, item, kv_head, row) + v] = pack_quad(x);
}

fn store_d_value(item: u32, row: u32, kv_head: u32, v: u32, x: vec4<f32>) {
  d_value[row_at(geometry.d_value, item, kv_head, row) + v] = pack_quad(x);
}
#endif

#if DENSE_BITS
// A dense mask of bits, 32 keys per word from the key dense_keys_from on: a set bit shows the key. Keys
// before are shown (a tree of drafts behind a common prefix). No branch: inlined into unrolled loops
// it costs a compiler minutes.
fn bias(item: u32, head: u32, row: u32, key: u32) -> f32 {
  let bit = max(key, geometry.dense_keys_from) - geometry.dense_keys_from;
  let word = mask[row_at(geometry.dense, item, head, row) + bit / 32u];
  let shown = (key < geometry.dense_keys_from) | (((word >> (bit % 32u)) & 1u) != 0u);
  return select(MASKED, 0.0, shown);
}
#elif DENSE
// A dense mask of f32 that is added to the scores; what lies below UNMASKED hides the key.
fn bias(item: u32, head: u32, row: u32, key: u32) -> f32 {
  return bitcast<f32>(mask[row_at(geometry.dense, item, head, row) + key]);
}
#endif
#elif FORWARD
#import lib/step
#import lib/cache/key_row

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
#else
#import lib/step

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

#if QUERY
fn store_d_query(item: u32, row: u32, head: u32, v: u32, x: vec4<f32>) {
  gradient[row * (STRIDE / 4u) + head * (HEAD_DIM / 4u) + v] = x;
}
#elif KEY_VALUE
// An owner is a key-value head, whose gradients lie in the fused row, or a query head, whose part
// attention_group_sum adds up.
fn store_d_key(item: u32, row: u32, owner: u32, v: u32, x: vec4<f32>) {
  gradient[(row * D_STRIDE + D_KEY_OFFSET + owner * HEAD_DIM) / 4u + v] = x;
}

fn store_d_value(item: u32, row: u32, owner: u32, v: u32, x: vec4<f32>) {
  gradient[(row * D_STRIDE + D_VALUE_OFFSET + owner * HEAD_DIM) / 4u + v] = x;
}
#endif
#endif

#if IN_REGISTERS
// Whole heads, for the row forms.
#import lib/attention/head

fn query_of(item: u32, row: u32, head: u32) -> Head {
  var x: Head;
  #unroll for (var i = 0u; i < VECTORS; i++) {
    x.v#i = load_query(item, row, head, i);
  }
  return x;
}

fn key_of(item: u32, row: u32, head: u32) -> Head {
  var x: Head;
  #unroll for (var i = 0u; i < VECTORS; i++) {
    x.v#i = load_key(item, row, head, i);
  }
  return x;
}

fn value_of(item: u32, row: u32, head: u32) -> Head {
  var x: Head;
  #unroll for (var i = 0u; i < VECTORS; i++) {
    x.v#i = load_value(item, row, head, i);
  }
  return x;
}

#if !FORWARD
fn d_output_of(item: u32, row: u32, head: u32) -> Head {
  var x: Head;
  #unroll for (var i = 0u; i < VECTORS; i++) {
    x.v#i = load_d_output(item, row, head, i);
  }
  return x;
}
#endif
#endif
