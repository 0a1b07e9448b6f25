// position_forward: x[t, :] += weight[position of t in its document, :]
//
// Grid: one invocation per element of x.
#import lib/step
#import lib/flat
#import lib/range

#binding x: array<f32>          // read_write  f32 [tokens, HIDDEN]
#binding weight: array<f32>     // read        f32 [range.cols, HIDDEN]   rows range.col0 … of the table
#binding documents: array<u32>  // read        u32 [tokens]               start of each row's document
#binding step: Step             // uniform
#binding range: Range           // uniform

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
