// activation_backward: the input's gradient, and the forward's output once more (it is cheaper to
// recompute than to keep).
//
//   0 input     read   f32 [tokens, WIDTH]
//   1 d_output  read   f32 [tokens, WIDTH]
//   2 d_input   write  f32 [tokens, WIDTH]   overwritten
//   3 output    write  f32 [tokens, WIDTH]   overwritten: activate(input)
//   4 step      uniform
//
// Grid: one invocation per element.
#import lib/step
#import lib/flat
#import lib/activation

@group(0) @binding(0) var<storage, read> input: array<f32>;
@group(0) @binding(1) var<storage, read> d_output: array<f32>;
@group(0) @binding(2) var<storage, read_write> d_input: array<f32>;
@group(0) @binding(3) var<storage, read_write> output: array<f32>;
@group(0) @binding(4) var<uniform> step: Step;

fn run(lane: u32, workgroup: vec3<u32>, workgroups: vec3<u32>) {
  let id = flat_id(lane, workgroup, workgroups);
  if id / WIDTH < step.tokens {
    d_input[id] = d_output[id] * activate_derivative(input[id]);
    output[id] = activate(input[id]);
  }
}
