// What matvec multiplies is all of a.
fn a_row() -> u32 {
  return 0u;
}

fn find_row(lane: u32, group: u32) {}
