// column_sum: output[i] (+)= Σ over b of partial[b, i], for b in ceil(tokens / ROWS) blocks.
//
//   0 partial  read        f32 [blocks, HIDDEN]
//   1 output   read_write  f32 [HIDDEN]          by WRITE_MODE
//   2 step     uniform
//
// Grid: one invocation a column.
@group(0) @binding(0) var<storage, read> partial_sums: array<f32>;
@group(0) @binding(1) var<storage, read_write> output: array<f32>;
@group(0) @binding(2) var<uniform> step: Step;

fn run(lane: u32, workgroup: vec3<u32>, workgroups: vec3<u32>) {
  let column = flat_id(lane, workgroup, workgroups);
  if column >= HIDDEN {
    return;
  }
  let blocks = (step.tokens + ROWS - 1u) / ROWS;
  var total = 0.0;
  for (var b = 0u; b < blocks; b++) {
    total += partial_sums[b * HIDDEN + column];
  }
  if adds(step.accumulate) {
    total += output[column];
  }
  output[column] = total;
}
