// The sums of a unit of matvec_rows that one invocation has: LANES = 1.
fn finish(lane: u32, first: u32, row0: u32, sums: ptr<function, array<f32, SUMS>>) {
  for (var s = 0u; s < SUMS; s++) {
    store(row0 + s % COLUMNS, first + s / COLUMNS, (*sums)[s]);
  }
}
