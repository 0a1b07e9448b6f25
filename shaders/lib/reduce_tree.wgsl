// Workgroup reductions through workgroup memory: a binary tree, any adapter. WORKGROUP is a power
// of two. Every invocation must call, in uniform control flow; every invocation gets the result.
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
