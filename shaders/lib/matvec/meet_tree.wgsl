// The sums of the LANES invocations of a row of matvec, for the first of them: by a tree in workgroup memory.
var<workgroup> lane_sums: array<array<f32, WORKGROUP>, SUMS>;

// An invocation's number within its workgroup's rows.
fn place_of(lane: u32) -> u32 {
  return lane;
}

fn meet(lane: u32, sums: ptr<function, array<f32, SUMS>>) {
  #unroll for (var s = 0u; s < SUMS; s++) {
    lane_sums[s][lane] = (*sums)[s];
  }
  for (var width = LANES / 2u; width > 0u; width /= 2u) {
    workgroupBarrier();
    if lane % LANES < width {
      #unroll for (var s = 0u; s < SUMS; s++) {
        lane_sums[s][lane] += lane_sums[s][lane + width];
      }
    }
  }
  #unroll for (var s = 0u; s < SUMS; s++) {
    (*sums)[s] = lane_sums[s][lane];
  }
}
