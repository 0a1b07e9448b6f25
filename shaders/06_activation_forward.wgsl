// activation_forward: output = activate(input).
//
// Grid: one invocation per element.
#import lib/step
#import lib/flat
#import lib/activation

#binding input: array<f32>   // read     f32 [tokens, WIDTH]
#binding output: array<f32>  // write    f32 [tokens, WIDTH]   overwritten
#binding step: Step          // uniform

fn run(lane: u32, workgroup: vec3<u32>, workgroups: vec3<u32>) {
  let id = flat_id(lane, workgroup, workgroups);
  if id / WIDTH < step.tokens {
    output[id] = activate(input[id]);
  }
}
