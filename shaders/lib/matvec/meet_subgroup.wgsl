// The sums of the LANES = WORKGROUP invocations of a row of matvec, for all of them: by subgroups, then over
// one partial sum per subgroup. Right for any width from 4 to 128, as lib/reduce_subgroup.wgsl.
var<workgroup> subgroup_sums: array<array<f32, (WORKGROUP + 3u) / 4u>, SUMS>;

// An invocation's number within its workgroup's rows.
fn place_of(lane: u32) -> u32 {
  return lane;
}

fn meet(lane: u32, sums: ptr<function, array<f32, SUMS>>) {
  sum_by_subgroup(sums);
  #unroll for (var s = 0u; s < SUMS; s++) {
    var total = subgroup_sums[s][0];
    for (var i = 1u; i < subgroup_count; i++) {
      total += subgroup_sums[s][i];
    }
    (*sums)[s] = total;
  }
}
