#if FACTORED
#binding moment2: array<f32>  // read  f32 [shard]

// By what the product of a row's mean and a column's is a second moment: 1 over the mean of all, which is the mean of
// the columns' means as it is of the rows'.
fn second_factor(lane: u32) -> f32 {
  var total = 0.0;
  for (var i = lane; i < COLUMNS; i += WORKGROUP) {
    total += moment2[place.col0 + i];
  }
  return 1.0 / max(reduce_sum(lane, total) / f32(COLUMNS), step.numbers[EPSILON].x);
}

fn second(i: u32, factor: f32) -> f32 {
  return moment1[place.row0 + i / COLUMNS] * moment2[place.col0 + i % COLUMNS] * factor;
}
#else
// A vector's second moment is kept whole.
fn second_factor(lane: u32) -> f32 {
  return 1.0;
}

fn second(i: u32, factor: f32) -> f32 {
  return moment1[place.row0 + i];
}
#endif
