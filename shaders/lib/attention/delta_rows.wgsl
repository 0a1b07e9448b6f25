// attention_delta_backward on the fused rows of a batch:
//
//   0 output    read   f32 or f16 [tokens, HEADS · HEAD_DIM]
//   1 d_output  read   f32 or f16 [tokens, HEADS · HEAD_DIM], or parts of it in f32
//   2 delta     write  f32 [tokens, HEADS]            overwritten
//   3 step      uniform
//   4 whole     write  f32 [tokens, HEADS · HEAD_DIM]  overwritten: d_output, for who reads it later (only of parts)
@group(0) @binding(0) var<storage, read> output: array<OutputQuad>;
@group(0) @binding(1) var<storage, read> d_output: array<DOutputQuad>;
@group(0) @binding(2) var<storage, read_write> delta: array<f32>;
@group(0) @binding(3) var<uniform> step: Step;

fn invocation_count() -> u32 {
  return step.tokens * HEADS;
}

fn product(id: u32, v: u32) -> f32 {
  let at = id * (HEAD_DIM / 4u) + v;
  return dot(output_floats(output[at]), d_output_floats(d_output_at(at)));
}

fn store_delta(id: u32, x: f32) {
  delta[id] = x;
}
