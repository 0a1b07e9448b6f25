// How the sums of the LANES invocations of a row of matvec meet.
#if SUBGROUPS
var<private> subgroup_index: u32;
var<private> subgroup_count: u32;
var<private> subgroup_lane: u32;

// A sum per subgroup.
fn sum_by_subgroup(sums: ptr<function, array<f32, SUMS>>) {
  #unroll for (var s = 0u; s < SUMS; s++) {
    let sum = subgroupAdd((*sums)[s]);
    if subgroup_lane == 0u {
      subgroup_sums[s][subgroup_index] = sum;
    }
  }
  workgroupBarrier();
}

#if ROWS_OF_SUBGROUPS
// For a workgroup of several rows. Each row has SHARE subgroups of SUBGROUP
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
#else
// The sums of the LANES = WORKGROUP invocations of a row of matvec, for all of them: by subgroups, then over
// one partial sum per subgroup. Right for any width from 4 to 128, as lib/reduce.wgsl.
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
#endif
#else
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
#endif
