// The first half of lib/matvec/meet_subgroup.wgsl and lib/matvec/meet_subgroup_rows.wgsl: a sum per subgroup.
var<private> subgroup_index: u32;
var<private> subgroup_count: u32;
var<private> subgroup_lane: u32;

fn sum_by_subgroup(sums: ptr<function, array<f32, SUMS>>) {
  #unroll for (var s = 0u; s < SUMS; s++) {
    let sum = subgroupAdd((*sums)[s]);
    if subgroup_lane == 0u {
      subgroup_sums[s][subgroup_index] = sum;
    }
  }
  workgroupBarrier();
}
