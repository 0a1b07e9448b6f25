// uses: step, flat, math, activation/silu or activation/gelu or activation/gelu_tanh
// gated_activation_backward: gradients of gate and up, and the forward's output once more (it is
// cheaper to recompute than to keep).
//
//   0 gate_up    read   f32 [tokens, 2 · WIDTH]   gate | up
//   1 d_output   read   f32 [tokens, WIDTH]
//   2 d_gate_up  write  f32 [tokens, 2 · WIDTH]   overwritten
//   3 output     write  f32 [tokens, WIDTH]       overwritten: activate(gate) · up
//   4 step       uniform
//
// Grid: one invocation per element of output.
@group(0) @binding(0) var<storage, read> gate_up: array<f32>;
@group(0) @binding(1) var<storage, read> d_output: array<f32>;
@group(0) @binding(2) var<storage, read_write> d_gate_up: array<f32>;
@group(0) @binding(3) var<storage, read_write> output: array<f32>;
@group(0) @binding(4) var<uniform> step: Step;

fn run(lane: u32, workgroup: vec3<u32>, workgroups: vec3<u32>) {
  let id = flat_id(lane, workgroup, workgroups);
  let t = id / WIDTH;
  if t < step.tokens {
    let i = t * 2u * WIDTH + id % WIDTH;
    let gate = gate_up[i];
    let up = gate_up[i + WIDTH];
    let activated = activate(gate);
    let slope = d_output[id];
    d_gate_up[i] = slope * up * activate_derivative(gate);
    d_gate_up[i + WIDTH] = slope * activated;
    output[id] = activated * up;
  }
}
