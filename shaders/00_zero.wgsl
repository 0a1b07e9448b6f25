// zero_forward: clears the gradient rows that embedding_backward will only partly write, on the
// first micro-step of an accumulation.
//
// Grid: one invocation per element.
#import lib/step
#import lib/flat

#binding data: array<f32>  // read_write  f32 [COUNT]
#binding step: Step        // uniform

fn run(lane: u32, workgroup: vec3<u32>, workgroups: vec3<u32>) {
  let id = flat_id(lane, workgroup, workgroups);
  if id < arrayLength(&data) && step.accumulate == 0u {
    data[id] = 0.0;
  }
}
