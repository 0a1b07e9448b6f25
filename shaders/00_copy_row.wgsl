// copy_row_forward: the last row of a batch, for the language-model head of a prefill.
//
//   0 input   read   f32 [tokens, HIDDEN]
//   1 output  write  f32 [HIDDEN]          overwritten
//   2 step    uniform
//
// Grid: one invocation per column.
#import lib/step
#import lib/flat

@group(0) @binding(0) var<storage, read> input: array<f32>;
@group(0) @binding(1) var<storage, read_write> output: array<f32>;
@group(0) @binding(2) var<uniform> step: Step;

fn run(lane: u32, workgroup: vec3<u32>, workgroups: vec3<u32>) {
  let column = flat_id(lane, workgroup, workgroups);
  if column < HIDDEN {
    output[column] = input[(step.tokens - 1u) * HIDDEN + column];
  }
}
