// uses: step, flat, math, activation/silu or activation/gelu or activation/gelu_tanh
// gated_activation_forward: output[t, i] = activate(gate[t, i]) · up[t, i]
// (SwiGLU, GeGLU: Shazeer, "GLU variants improve transformer", arXiv:2002.05202)
//
//   0 gate_up  read   f32 [tokens, 2 · WIDTH]   gate | up
//   1 output   write  f32 [tokens, WIDTH]       overwritten
//   2 step     uniform
//
// Grid: one invocation per element of output.
@group(0) @binding(0) var<storage, read> gate_up: array<f32>;
@group(0) @binding(1) var<storage, read_write> output: array<f32>;
@group(0) @binding(2) var<uniform> step: Step;

fn run(lane: u32, workgroup: vec3<u32>, workgroups: vec3<u32>) {
  let id = flat_id(lane, workgroup, workgroups);
  let t = id / WIDTH;
  if t < step.tokens {
    let i = t * 2u * WIDTH + id % WIDTH;
    output[id] = activate(gate_up[i]) * gate_up[i + WIDTH];
  }
}
