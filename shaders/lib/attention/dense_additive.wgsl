// A dense mask of f32 that is added to the scores; what lies below UNMASKED hides the key.
const DENSE: bool = true;

fn bias(item: u32, head: u32, row: u32, key: u32) -> f32 {
  return bitcast<f32>(mask[row_at(geometry.dense, item, head, row) + key]);
}
