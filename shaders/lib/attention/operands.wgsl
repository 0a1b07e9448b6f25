// What the tiled and the row forms of attention read and write: a pass is FORWARD, of a QUERY or of a KEY_VALUE.
// Fused rows of a batch in f32, whose keys come from the rows themselves or, forward, from the cache; or TENSORS of any
// strides (lib/attention/geometry.wgsl) in f32 or F16. Behind them the range of lib/attention/dropout.wgsl is bound.
#import lib/attention/mask
#import lib/attention/dropout

#if TENSORS
#import lib/quad

#binding query: array<Quad>   // read  [batch, HEADS, query rows, HEAD_DIM]
#binding keys: array<Quad>    // read  [batch, KV_HEADS, key rows, HEAD_DIM]
#binding values: array<Quad>  // read  as keys

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
#binding mask: array<u32>     // read     u32: intervals, then the dense part
#binding output: array<Quad>  // write    as query, strides of its own; overwritten
#binding lse: array<f32>      // write    f32 [batch, HEADS, query rows]; overwritten
#binding geometry: Geometry   // uniform

fn store_output(item: u32, row: u32, head: u32, v: u32, x: vec4<f32>) {
  output[row_at(geometry.output, item, head, row) + v] = pack_quad(x);
}

fn store_lse(item: u32, row: u32, head: u32, x: f32) {
  lse[(item * HEADS + head) * geometry.query_rows + row] = x;
}
#else
#binding d_output: array<Quad>         // read  as query
#binding statistics: array<vec2<f32>>  // read  vec2<f32> [batch, HEADS, query rows]  logsumexp, delta
#binding mask: array<u32>              // read

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
#binding d_query: array<Quad>  // write    as query, strides of its own; overwritten
#binding geometry: Geometry    // uniform

fn store_d_query(item: u32, row: u32, head: u32, v: u32, x: vec4<f32>) {
  d_query[row_at(geometry.d_query, item, head, row) + v] = pack_quad(x);
}
#elif KEY_VALUE
#binding d_key: array<Quad>    // write    as keys, strides of its own; overwritten
#binding d_value: array<Quad>  // write    as keys, strides of its own; overwritten
#binding geometry: Geometry    // uniform

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

// Keys lie in rows where lib/cache/key_row.wgsl says.
#binding query: array<vec4<f32>>   // read     [tokens, Q_STRIDE]          head h at column h · HEAD_DIM
#binding keys: array<vec4<f32>>    // read     [keys, KV_STRIDE]           heads from KEY_OFFSET, values from VALUE_OFFSET
#binding documents: array<u32>     // read     u32 [tokens]                first key that each query may see
#binding output: array<vec4<f32>>  // write    [tokens, HEADS · HEAD_DIM]  overwritten
#binding lse: array<f32>           // write    [tokens, HEADS]             natural log; overwritten
#binding step: Step                // uniform

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

#binding qkv: array<vec4<f32>>       // read     [tokens, STRIDE]           query heads | key heads | value heads
#binding d_output: array<vec4<f32>>  // read     [tokens, HEADS · HEAD_DIM]
#binding lse: array<f32>             // read     [tokens, HEADS]
#binding delta: array<f32>           // read     [tokens, HEADS]
#binding documents: array<u32>       // read     u32 [tokens], and for keys and values the ends behind them
#binding gradient: array<vec4<f32>>  // write    [tokens, STRIDE or D_STRIDE]  the kernel's own columns are overwritten
#binding step: Step                  // uniform

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
