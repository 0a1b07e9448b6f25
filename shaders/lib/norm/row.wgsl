// What is normalised.
fn row(i: u32) -> Vector {
  return x[i];
}
