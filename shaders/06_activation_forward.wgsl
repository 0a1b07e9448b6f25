// activation_forward: output = activate(input).
//
//   0 input   read   f32 [tokens, WIDTH]
//   1 output  write  f32 [tokens, WIDTH]   overwritten
//   2 step    uniform
//
// Grid: one invocation per element.
#import lib/step
#import lib/flat
#import lib/activation

@group(0) @binding(0) var<storage, read> input: array<f32>;
@group(0) @binding(1) var<storage, read_write> output: array<f32>;
@group(0) @binding(2) var<uniform> step: Step;

fn run(lane: u32, workgroup: vec3<u32>, workgroups: vec3<u32>) {
  let id = flat_id(lane, workgroup, workgroups);
  if id / WIDTH < step.tokens {
    output[id] = activate(input[id]);
  }
}
