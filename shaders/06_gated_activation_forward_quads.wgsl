// uses: step, flat, math, activation/silu or activation/gelu or activation/gelu_tanh, finite or none, element/quad_f32 or element/quad_f16, summed
// gated_activation_forward by four elements; its results may lie in f16, two to a word, for products that round them.
//
//   0 gate_up  read   f32 [tokens, 2 · WIDTH]     gate | up, or parts of it
//   1 output   write  f32 or f16 [tokens, WIDTH]  overwritten
//   2 step     uniform
//   3 whole    write  f32 [tokens, 2 · WIDTH]     overwritten: gate | up, for who reads it later (only of parts)
//
// WIDTH is a multiple of 4.
// Grid: one invocation for each four elements of output.
@group(0) @binding(0) var<storage, read> gate_up: array<vec4<f32>>;
@group(0) @binding(1) var<storage, read_write> output: array<Quad>;
@group(0) @binding(2) var<uniform> step: Step;

fn run(lane: u32, workgroup: vec3<u32>, workgroups: vec3<u32>) {
  let id = flat_id(lane, workgroup, workgroups);
  let t = id / (WIDTH / 4u);
  if t < step.tokens {
    let i = t * (WIDTH / 2u) + id % (WIDTH / 4u);
    let gate = gate_up_at(i);
    let activated = vec4(activate(gate.x), activate(gate.y), activate(gate.z), activate(gate.w));
    output[id] = pack_quad(activated * gate_up_at(i + WIDTH / 4u));
  }
}
