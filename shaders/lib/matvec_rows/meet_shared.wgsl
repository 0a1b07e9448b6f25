// The sums of the LANES = WORKGROUP invocations of a unit of matvec_rows, through workgroup memory.
const SUMS_PITCH: u32 = WORKGROUP + 1u;
var<workgroup> parts: array<f32, SUMS * SUMS_PITCH>;

fn unit_place(lane: u32) -> vec2<u32> {
  return vec2(0u, lane);
}

fn meet(lane: u32, place: vec2<u32>, sums: ptr<function, array<f32, SUMS>>) {
  #unroll for (var s = 0u; s < SUMS; s++) {
    parts[s * SUMS_PITCH + lane] = (*sums)[s];
  }
  workgroupBarrier();
  for (var s = lane; s < SUMS; s += WORKGROUP) {
    var sum = 0.0;
    for (var i = 0u; i < WORKGROUP; i++) {
      sum += parts[s * SUMS_PITCH + i];
    }
    parts[s * SUMS_PITCH] = sum;
  }
  workgroupBarrier();
}

fn total(unit: u32, s: u32) -> f32 {
  return parts[s * SUMS_PITCH];
}
