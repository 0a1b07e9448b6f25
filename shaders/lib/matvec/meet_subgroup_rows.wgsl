// As lib/matvec/meet_subgroup.wgsl, for a workgroup of several rows. Each row has SHARE subgroups of SUBGROUP
// invocations. Both are constants, because a division before the first load delays it.
var<workgroup> subgroup_sums: array<array<f32, WORKGROUP / SUBGROUP>, SUMS>;

// An invocation's number within its workgroup's rows, by subgroup: WGSL does not say which indices a subgroup has.
fn place_of(lane: u32) -> u32 {
  return subgroup_index * SUBGROUP + subgroup_lane;
}

fn meet(lane: u32, sums: ptr<function, array<f32, SUMS>>) {
  sum_by_subgroup(sums);
  let first = subgroup_index / SHARE * SHARE;
  #unroll for (var s = 0u; s < SUMS; s++) {
    var total = 0.0;
    #unroll for (var i = 0u; i < SHARE; i++) {
      total += subgroup_sums[s][first + i];
    }
    (*sums)[s] = total;
  }
}
