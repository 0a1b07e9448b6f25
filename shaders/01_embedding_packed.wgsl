// embedding_packed_forward: x[t, :] = weight[tokens[t], :] of a packed table
//
//   1 packed   read   lib/weights/  [range.cols, UNITS]   rows range.col0 … of the vocabulary
//
// ANGLES: a decoded row leaves its angles, by lib/embedding_angles.wgsl and what that binds.
//
// Grid: one invocation per unit of a packed row, for each token.
#import lib/step
#import lib/flat
#import lib/range
#if ANGLES
#import lib/embedding_angles
#endif
#import lib/weights

#binding tokens: array<u32>        // read     u32 [tokens]
// output: f32 [tokens, UNITS · QUADS · 4] overwritten where the token is in this part
#binding output: array<vec4<f32>>  // write
#binding step: Step                // uniform
#binding range: Range              // uniform

fn run(lane: u32, workgroup: vec3<u32>, workgroups: vec3<u32>) {
  let id = flat_id(lane, workgroup, workgroups);
#if ANGLES
  leave_angles(id);
#endif
  let t = id / UNITS;
  if t >= step.tokens {
    return;
  }
  let row = tokens[t] - range.col0; // wraps below the part, and so fails the next test too
  if row >= range.cols {
    return;
  }
  let i = row * UNITS + id % UNITS;
  let words = fetch_packed(i);
  let scale = scale_of(i);
  #unroll for (var q = 0u; q < QUADS; q++) {
    output[id * QUADS + q] = scale * quad_of(words, q);
  }
}
