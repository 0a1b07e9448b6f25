// Where tensors of attention lie that are not the fused rows of a batch: each [batch, heads, rows,
// HEAD_DIM] with strides of its own, and the mask's parts. Written by the host for each call
// (`kernels/attention_tensors.rs`), so that other lengths, batches and layouts compile nothing.
struct Geometry {
  // In vectors of four elements: from one batch item, head and row to the next, and to the first.
  query: vec4<u32>,
  key: vec4<u32>,
  value: vec4<u32>,
  output: vec4<u32>,
  d_output: vec4<u32>,
  d_query: vec4<u32>,
  d_key: vec4<u32>,
  d_value: vec4<u32>,
  // Of the mask, in words. Intervals are pairs (first, end): of keys for each query row from word 0
  // on, of queries for each key row from word `w` on. Batch strides of the two, unused, `w`.
  intervals: vec4<u32>,
  // Dense part: from one batch item, head and query row to the next, and to the first.
  dense: vec4<u32>,
  batch: u32,
  query_rows: u32,
  key_rows: u32,
  // Keys before this one are no columns of the dense part.
  dense_keys_from: u32,
}

// Index of a row's first vector.
fn row_at(strides: vec4<u32>, item: u32, head: u32, row: u32) -> u32 {
  return strides.w + item * strides.x + head * strides.y + row * strides.z;
}
