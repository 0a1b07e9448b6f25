// attention_delta_backward: delta[t, h] = Σ over d of output[t, h, d] · d_output[t, h, d], which
// equals Σ over keys of P · dP (FlashAttention-2's pre-pass).
//
//   0 output    read   f32 [tokens, HEADS · HEAD_DIM]
//   1 d_output  read   f32 [tokens, HEADS · HEAD_DIM]
//   2 delta     write  f32 [tokens, HEADS]            overwritten
//   3 step      uniform
//
// Grid: one invocation a row and head.
@group(0) @binding(0) var<storage, read> output: array<vec4<f32>>;
@group(0) @binding(1) var<storage, read> d_output: array<vec4<f32>>;
@group(0) @binding(2) var<storage, read_write> delta: array<f32>;
@group(0) @binding(3) var<uniform> step: Step;

fn run(lane: u32, workgroup: vec3<u32>, workgroups: vec3<u32>) {
  let id = flat_id(lane, workgroup, workgroups);
  if id >= step.tokens * HEADS {
    return;
  }
  var total = 0.0;
  for (var i = id * (HEAD_DIM / 4u); i < (id + 1u) * (HEAD_DIM / 4u); i++) {
    total += dot(output[i], d_output[i]);
  }
  delta[id] = total;
}
