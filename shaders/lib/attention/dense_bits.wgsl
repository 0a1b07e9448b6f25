// A dense mask of bits, 32 keys per word from the key dense_keys_from on: a set bit shows the key. Keys
// before are shown (a tree of drafts behind a common prefix). No branch: inlined into unrolled loops
// it costs a compiler minutes.
const DENSE: bool = true;

fn bias(item: u32, head: u32, row: u32, key: u32) -> f32 {
  let bit = max(key, geometry.dense_keys_from) - geometry.dense_keys_from;
  let word = mask[row_at(geometry.dense, item, head, row) + bit / 32u];
  let shown = (key < geometry.dense_keys_from) | (((word >> (bit % 32u)) & 1u) != 0u);
  return select(MASKED, 0.0, shown);
}
