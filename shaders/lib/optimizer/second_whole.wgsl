// A vector's second moment is kept whole.
fn second_factor(lane: u32) -> f32 {
  return 1.0;
}

fn second(i: u32, factor: f32) -> f32 {
  return moment1[place.row0 + i];
}
