// Reductions over a workgroup. Every invocation must call, in uniform control flow; every invocation gets the result.
#if SUBGROUPS
// By subgroups, then over one partial a subgroup. Right for any width from 4 to 128: subgroup ids come from the builtin,
// never from dividing the invocation index. Reductions alternate between two scratch arrays, so each needs one barrier.
// An invocation that writes an array has passed the barrier of the reduction before. All invocations had read the array
// when they reached that barrier.
var<private> subgroup_index: u32;
var<private> subgroup_count: u32;
var<private> subgroup_lane: u32;
var<private> reduce_turn: u32;
var<workgroup> reduce_scratch: array<array<f32, (WORKGROUP + 3u) / 4u>, 2>;

fn reduce_sum(lane: u32, value: f32) -> f32 {
  let partial = subgroupAdd(value);
  let turn = reduce_turn;
  reduce_turn = 1u - turn;
  if subgroup_lane == 0u {
    reduce_scratch[turn][subgroup_index] = partial;
  }
  workgroupBarrier();
  var total = 0.0;
  for (var i = 0u; i < subgroup_count; i++) {
    total += reduce_scratch[turn][i];
  }
  return total;
}

fn reduce_max(lane: u32, value: f32) -> f32 {
  let partial = subgroupMax(value);
  let turn = reduce_turn;
  reduce_turn = 1u - turn;
  if subgroup_lane == 0u {
    reduce_scratch[turn][subgroup_index] = partial;
  }
  workgroupBarrier();
  var largest = reduce_scratch[turn][0];
  for (var i = 1u; i < subgroup_count; i++) {
    largest = max(largest, reduce_scratch[turn][i]);
  }
  return largest;
}
#else
// Through workgroup memory: a binary tree, any adapter. WORKGROUP is a power of two.
var<workgroup> reduce_scratch: array<f32, WORKGROUP>;

fn reduce_sum(lane: u32, value: f32) -> f32 {
  reduce_scratch[lane] = value;
  workgroupBarrier();
  for (var half = WORKGROUP / 2u; half > 0u; half /= 2u) {
    if lane < half {
      reduce_scratch[lane] += reduce_scratch[lane + half];
    }
    workgroupBarrier();
  }
  let total = reduce_scratch[0];
  workgroupBarrier();
  return total;
}

fn reduce_max(lane: u32, value: f32) -> f32 {
  reduce_scratch[lane] = value;
  workgroupBarrier();
  for (var half = WORKGROUP / 2u; half > 0u; half /= 2u) {
    if lane < half {
      reduce_scratch[lane] = max(reduce_scratch[lane], reduce_scratch[lane + half]);
    }
    workgroupBarrier();
  }
  let largest = reduce_scratch[0];
  workgroupBarrier();
  return largest;
}
#endif
