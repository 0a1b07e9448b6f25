// activation_backward: the input's gradient, and the forward's output once more (it is cheaper to
// recompute than to keep).
//
// Grid: one invocation per element.
#import lib/step
#import lib/flat
#import lib/activation

#binding input: array<f32>     // read     f32 [tokens, WIDTH]
#binding d_output: array<f32>  // read     f32 [tokens, WIDTH]
#binding d_input: array<f32>   // write    f32 [tokens, WIDTH]   overwritten
#binding output: array<f32>    // write    f32 [tokens, WIDTH]   overwritten: activate(input)
#binding step: Step            // uniform

fn run(lane: u32, workgroup: vec3<u32>, workgroups: vec3<u32>) {
  let id = flat_id(lane, workgroup, workgroups);
  if id / WIDTH < step.tokens {
    d_input[id] = d_output[id] * activate_derivative(input[id]);
    output[id] = activate(input[id]);
  }
}
