// column_sum: output[i] (+)= Σ over b of partial[b, i], for b in ceil(tokens / ROWS) blocks, for each of WEIGHTS
// weights. Partial sums of weight w begin at w * PARTIAL_STRIDE, its output at (WEIGHTS - 1 - w) * OUTPUT_STRIDE.
//
// LANES invocations share a column, each every LANES-th block, LOADS at a time; their sums meet in workgroup memory.
// Grid: WORKGROUP / LANES neighbouring columns per workgroup.
#import lib/step
#import lib/flat
#import lib/write_mode

#binding partial_sums: array<f32>  // read  f32 [blocks, HIDDEN] for each weight
#binding output: array<f32>        // read_write  f32 [HIDDEN] for each weight          by WRITE_MODE
#binding step: Step                // uniform

const COLUMNS_PER_GROUP: u32 = WORKGROUP / LANES;

var<workgroup> lane_sums: array<f32, WORKGROUP>;

fn run(lane: u32, workgroup: vec3<u32>, workgroups: vec3<u32>) {
  let column = flat_workgroup(workgroup, workgroups) * COLUMNS_PER_GROUP + lane % COLUMNS_PER_GROUP;
  let weight = column / HIDDEN;
  let i = column % HIDDEN;
  let blocks = (step.tokens + ROWS - 1u) / ROWS;
  var total = 0.0;
  if weight < WEIGHTS {
    for (var b = lane / COLUMNS_PER_GROUP; b < blocks; b += LOADS * LANES) {
      #unroll for (var j = 0u; j < LOADS; j++) {
        let block = b + j * LANES;
        let part = partial_sums[weight * PARTIAL_STRIDE + min(block, blocks - 1u) * HIDDEN + i];
        total += select(0.0, part, block < blocks);
      }
    }
  }
  lane_sums[lane] = total;
  for (var width = LANES / 2u; width > 0u; width /= 2u) {
    workgroupBarrier();
    if lane < width * COLUMNS_PER_GROUP {
      lane_sums[lane] += lane_sums[lane + width * COLUMNS_PER_GROUP];
    }
  }
  if lane < COLUMNS_PER_GROUP && weight < WEIGHTS {
    let place = (WEIGHTS - 1u - weight) * OUTPUT_STRIDE + i;
    total = lane_sums[lane];
    if adds(step.accumulate) {
      total += output[place];
    }
    output[place] = total;
  }
}
