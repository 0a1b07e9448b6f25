// embedding_forward: x[t, :] = weight[tokens[t], :], of a table in f32 or PACKED (lib/weights.wgsl).
//
// ANGLES: a decoded row leaves its angles, by lib/embedding_angles.wgsl and what that binds.
//
// Grid: one invocation per element of a row, or per unit of a packed one, for each token.
#import lib/step
#import lib/flat
#import lib/range
#if ANGLES
#import lib/embedding_angles
#endif

#binding tokens: array<u32>        // read     u32 [tokens]
#if PACKED
#binding output: array<vec4<f32>>  // write    f32 [tokens, HIDDEN]       overwritten where the token is in this part
#else
#binding weight: array<f32>        // read     f32 [range.cols, HIDDEN]   rows range.col0 … of the vocabulary
#binding output: array<f32>        // write    f32 [tokens, HIDDEN]       overwritten where the token is in this part
#endif
#binding step: Step                // uniform
#binding range: Range              // uniform

fn run(lane: u32, workgroup: vec3<u32>, workgroups: vec3<u32>) {
  let id = flat_id(lane, workgroup, workgroups);
#if ANGLES
  leave_angles(id);
#endif
  let t = id / INVOCATIONS;
  if t >= step.tokens {
    return;
  }
  let row = tokens[t] - range.col0; // wraps below the part, and so fails the next test too
  if row >= range.cols {
    return;
  }
  let i = row * INVOCATIONS + id % INVOCATIONS;
#if PACKED
  let words = fetch_packed(i);
  let scale = scale_of(i);
  #unroll for (var q = 0u; q < QUADS; q++) {
    output[id * QUADS + q] = scale * quad_of(words, q);
  }
#else
  output[id] = weight[i];
#endif
}
