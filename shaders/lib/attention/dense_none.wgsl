// No dense mask: intervals of keys say all.
const DENSE: bool = false;

fn bias(item: u32, head: u32, row: u32, key: u32) -> f32 {
  return 0.0;
}
