// The sums of the LANES = WORKGROUP invocations of a unit of matvec_rows, through workgroup memory.
var<workgroup> parts: array<f32, SUMS * (WORKGROUP + 1u)>;

fn finish(lane: u32, first: u32, row0: u32, sums: ptr<function, array<f32, SUMS>>) {
  for (var s = 0u; s < SUMS; s++) {
    parts[s * (WORKGROUP + 1u) + lane] = (*sums)[s];
  }
  workgroupBarrier();
  for (var s = lane; s < SUMS; s += WORKGROUP) {
    var total = 0.0;
    for (var i = 0u; i < WORKGROUP; i++) {
      total += parts[s * (WORKGROUP + 1u) + i];
    }
    store(row0 + s % COLUMNS, first + s / COLUMNS, total);
  }
}
