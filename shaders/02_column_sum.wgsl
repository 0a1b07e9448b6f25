// uses: step, flat, write_mode
// column_sum: output[i] (+)= Σ over b of partial[b, i], for b in ceil(tokens / ROWS) blocks.
//
//   0 partial  read        f32 [blocks, HIDDEN]
//   1 output   read_write  f32 [HIDDEN]          by WRITE_MODE
//   2 step     uniform
//
// LANES invocations share a column, each every LANES-th block; their sums meet in workgroup memory.
// Grid: WORKGROUP / LANES neighbouring columns per workgroup.
@group(0) @binding(0) var<storage, read> partial_sums: array<f32>;
@group(0) @binding(1) var<storage, read_write> output: array<f32>;
@group(0) @binding(2) var<uniform> step: Step;

const COLUMNS_PER_GROUP: u32 = WORKGROUP / LANES;

var<workgroup> lane_sums: array<f32, WORKGROUP>;

fn run(lane: u32, workgroup: vec3<u32>, workgroups: vec3<u32>) {
  let column = flat_workgroup(workgroup, workgroups) * COLUMNS_PER_GROUP + lane % COLUMNS_PER_GROUP;
  let blocks = (step.tokens + ROWS - 1u) / ROWS;
  var total = 0.0;
  if column < HIDDEN {
    for (var b = lane / COLUMNS_PER_GROUP; b < blocks; b += LANES) {
      total += partial_sums[b * HIDDEN + column];
    }
  }
  lane_sums[lane] = total;
  for (var width = LANES / 2u; width > 0u; width /= 2u) {
    workgroupBarrier();
    if lane < width * COLUMNS_PER_GROUP {
      lane_sums[lane] += lane_sums[lane + width * COLUMNS_PER_GROUP];
    }
  }
  if lane < COLUMNS_PER_GROUP && column < HIDDEN {
    total = lane_sums[lane];
    if adds(step.accumulate) {
      total += output[column];
    }
    output[column] = total;
  }
}
