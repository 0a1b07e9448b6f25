// The sums of the LANES = WORKGROUP invocations of a unit of matvec_rows, by subgroups, then over one partial
// sum per subgroup. Right for any width from 4 to 128, as lib/reduce_subgroup.wgsl.
var<private> subgroup_index: u32;
var<private> subgroup_count: u32;
var<private> subgroup_lane: u32;
const MOST_SUBGROUPS: u32 = (WORKGROUP + 3u) / 4u;
var<workgroup> parts: array<f32, SUMS * MOST_SUBGROUPS>;

fn finish(lane: u32, first: u32, row0: u32, sums: ptr<function, array<f32, SUMS>>) {
  for (var s = 0u; s < SUMS; s++) {
    let sum = subgroupAdd((*sums)[s]);
    if subgroup_lane == 0u {
      parts[s * MOST_SUBGROUPS + subgroup_index] = sum;
    }
  }
  workgroupBarrier();
  for (var s = lane; s < SUMS; s += WORKGROUP) {
    var total = parts[s * MOST_SUBGROUPS];
    for (var i = 1u; i < subgroup_count; i++) {
      total += parts[s * MOST_SUBGROUPS + i];
    }
    store(row0 + s % COLUMNS, first + s / COLUMNS, total);
  }
}
