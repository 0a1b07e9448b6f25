// zero_forward: clears the gradient rows that embedding_backward will only partly write, on the
// first micro-step of an accumulation.
//
//   0 data   read_write  f32 [COUNT]
//   1 step   uniform
//
// Grid: one invocation per element.
#import lib/step
#import lib/flat

@group(0) @binding(0) var<storage, read_write> data: array<f32>;
@group(0) @binding(1) var<uniform> step: Step;

fn run(lane: u32, workgroup: vec3<u32>, workgroups: vec3<u32>) {
  let id = flat_id(lane, workgroup, workgroups);
  if id < arrayLength(&data) && step.accumulate == 0u {
    data[id] = 0.0;
  }
}
