// embedding_forward: x[t, :] = weight[tokens[t], :]
//
//   0 tokens   read   u32 [tokens]
//   1 weight   read   f32 [range.cols, HIDDEN]     rows range.col0 … of the vocabulary
//   2 output   write  f32 [tokens, HIDDEN]         overwritten where the token is in this part
//   3 step     uniform
//   4 range    uniform
//
// ANGLES: a decoded row leaves its angles, by lib/embedding_angles.wgsl and what that binds.
//
// Grid: one invocation per element of output.
#import lib/step
#import lib/flat
#import lib/range
#if ANGLES
#import lib/embedding_angles
#endif

@group(0) @binding(0) var<storage, read> tokens: array<u32>;
@group(0) @binding(1) var<storage, read> weight: array<f32>;
@group(0) @binding(2) var<storage, read_write> output: array<f32>;
@group(0) @binding(3) var<uniform> step: Step;
@group(0) @binding(4) var<uniform> range: Range;

fn run(lane: u32, workgroup: vec3<u32>, workgroups: vec3<u32>) {
  let id = flat_id(lane, workgroup, workgroups);
#if ANGLES
  leave_angles(id);
#endif
  let t = id / HIDDEN;
  if t >= step.tokens {
    return;
  }
  let row = tokens[t] - range.col0; // wraps below the part, and so fails the next test too
  if row < range.cols {
    output[id] = weight[row * HIDDEN + id % HIDDEN];
  }
}
