// A row or a run one element to a load, where its length is no multiple of four.
alias Vector = f32;
alias Places = u32;

fn total(value: Vector) -> f32 {
  return value;
}

// Where the elements of vector i are.
fn places(i: u32) -> Places {
  return i;
}
