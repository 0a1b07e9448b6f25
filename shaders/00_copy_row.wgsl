// copy_row_forward: the last row of a batch, for the language-model head of a prefill.
//
// Grid: one invocation per column.
#import lib/step
#import lib/flat

#binding input: array<f32>   // read     f32 [tokens, HIDDEN]
#binding output: array<f32>  // write    f32 [HIDDEN]          overwritten
#binding step: Step          // uniform

fn run(lane: u32, workgroup: vec3<u32>, workgroups: vec3<u32>) {
  let column = flat_id(lane, workgroup, workgroups);
  if column < HIDDEN {
    output[column] = input[(step.tokens - 1u) * HIDDEN + column];
  }
}
