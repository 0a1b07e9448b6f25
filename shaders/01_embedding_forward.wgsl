// embedding_forward: x[t, :] = weight[tokens[t], :]
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

#binding tokens: array<u32>  // read     u32 [tokens]
#binding weight: array<f32>  // read     f32 [range.cols, HIDDEN]     rows range.col0 … of the vocabulary
#binding output: array<f32>  // write    f32 [tokens, HIDDEN]         overwritten where the token is in this part
#binding step: Step          // uniform
#binding range: Range        // uniform

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
