// position_forward: x[t, :] += weight[position of t in its document, :]
//
//   0 x          read_write  f32 [tokens, HIDDEN]
//   1 weight     read        f32 [range.cols, HIDDEN]   rows range.col0 … of the table
//   2 documents  read        u32 [tokens]               start of each row's document
//   3 step       uniform
//   4 range      uniform
//
// Grid: one invocation per element of x.
#import lib/step
#import lib/flat
#import lib/range

@group(0) @binding(0) var<storage, read_write> x: array<f32>;
@group(0) @binding(1) var<storage, read> weight: array<f32>;
@group(0) @binding(2) var<storage, read> documents: array<u32>;
@group(0) @binding(3) var<uniform> step: Step;
@group(0) @binding(4) var<uniform> range: Range;

fn run(lane: u32, workgroup: vec3<u32>, workgroups: vec3<u32>) {
  let id = flat_id(lane, workgroup, workgroups);
  let t = id / HIDDEN;
  if t >= step.tokens {
    return;
  }
  // Wraps below the part, and so fails the next test too.
  let row = step.position + t - documents[t] - range.col0;
  if row < range.cols {
    x[id] += weight[row * HIDDEN + id % HIDDEN];
  }
}
