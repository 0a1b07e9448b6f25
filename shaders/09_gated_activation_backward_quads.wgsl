// uses: step, flat, math, activation/silu or activation/gelu or activation/gelu_tanh, finite or none, element/quad_f32 or element/quad_f16, summed
// gated_activation_backward by four elements; its results may lie in f16, two to a word, for products that round them.
//
//   0 gate_up    read   f32 [tokens, 2 · WIDTH]         gate | up
//   1 d_output   read   f32 [tokens, WIDTH]              or parts of it
//   2 d_gate_up  write  f32 or f16 [tokens, 2 · WIDTH]  overwritten
//   3 output     write  f32 or f16 [tokens, WIDTH]      overwritten: activate(gate) · up
//   4 step       uniform
//
// WIDTH is a multiple of 4.
// Grid: one invocation for each four elements of output.
@group(0) @binding(0) var<storage, read> gate_up: array<vec4<f32>>;
@group(0) @binding(1) var<storage, read> d_output: array<vec4<f32>>;
@group(0) @binding(2) var<storage, read_write> d_gate_up: array<Quad>;
@group(0) @binding(3) var<storage, read_write> output: array<Quad>;
@group(0) @binding(4) var<uniform> step: Step;

fn run(lane: u32, workgroup: vec3<u32>, workgroups: vec3<u32>) {
  let id = flat_id(lane, workgroup, workgroups);
  let t = id / (WIDTH / 4u);
  if t < step.tokens {
    let i = t * (WIDTH / 2u) + id % (WIDTH / 4u);
    let gate = gate_up[i];
    let up = gate_up[i + WIDTH / 4u];
    let activated = vec4(activate(gate.x), activate(gate.y), activate(gate.z), activate(gate.w));
    let derivative = vec4(
      activate_derivative(gate.x), activate_derivative(gate.y),
      activate_derivative(gate.z), activate_derivative(gate.w));
    let slope = slope_at(id);
    d_gate_up[i] = pack_quad(slope * up * derivative);
    d_gate_up[i + WIDTH / 4u] = pack_quad(slope * activated);
    output[id] = pack_quad(activated * up);
  }
}
