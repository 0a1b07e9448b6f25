// capture_forward: y[position + t, :] = FACTOR · x[t, FIRST …], COLUMNS of the STRIDE columns of each row
//
// Rows of a chunk go behind those of the chunks before.
// Grid: one invocation per element of [tokens, COLUMNS].
#import lib/step
#import lib/flat

#binding x: array<f32>  // read     f32 [tokens, STRIDE]
#binding y: array<f32>  // write    f32 [position + tokens, COLUMNS]  overwritten from row position on
#binding step: Step     // uniform

fn run(lane: u32, workgroup: vec3<u32>, workgroups: vec3<u32>) {
  let id = flat_id(lane, workgroup, workgroups);
  let t = id / COLUMNS;
  if t >= step.tokens {
    return;
  }
  y[step.position * COLUMNS + id] = FACTOR * x[t * STRIDE + FIRST + id % COLUMNS];
}
