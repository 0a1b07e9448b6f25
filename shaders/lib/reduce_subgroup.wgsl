// Workgroup reductions by subgroups, then over one partial a subgroup. Right for any width from 4
// to 128: subgroup ids come from the builtin, never from dividing the invocation index. Every
// invocation must call, in uniform control flow; every invocation gets the result.
var<private> subgroup_index: u32;
var<private> subgroup_count: u32;
var<private> subgroup_lane: u32;
var<workgroup> reduce_scratch: array<f32, (WORKGROUP + 3u) / 4u>;

fn reduce_sum(lane: u32, value: f32) -> f32 {
  let partial = subgroupAdd(value);
  if subgroup_lane == 0u {
    reduce_scratch[subgroup_index] = partial;
  }
  workgroupBarrier();
  var total = 0.0;
  for (var i = 0u; i < subgroup_count; i++) {
    total += reduce_scratch[i];
  }
  workgroupBarrier();
  return total;
}

fn reduce_max(lane: u32, value: f32) -> f32 {
  let partial = subgroupMax(value);
  if subgroup_lane == 0u {
    reduce_scratch[subgroup_index] = partial;
  }
  workgroupBarrier();
  var largest = reduce_scratch[0];
  for (var i = 1u; i < subgroup_count; i++) {
    largest = max(largest, reduce_scratch[i]);
  }
  workgroupBarrier();
  return largest;
}
