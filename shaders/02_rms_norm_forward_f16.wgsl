// uses: step, flat, norm/weight or norm/weight_shifted, reduce_subgroup or reduce_tree
// rms_norm_forward with results in f16, two to a word, for products that round them.
//
//   0 x       read   f32 [tokens, HIDDEN]
//   1 weight  read   f32 [HIDDEN]
//   2 y       write  f16 [tokens, HIDDEN]   overwritten
//   3 step    uniform
//
// HIDDEN is a multiple of 4.
// Grid: one workgroup per row.
@group(0) @binding(0) var<storage, read> x: array<vec4<f32>>;
@group(0) @binding(1) var<storage, read> weight: array<vec4<f32>>;
@group(0) @binding(2) var<storage, read_write> y: array<vec2<u32>>;
@group(0) @binding(3) var<uniform> step: Step;

fn run(lane: u32, workgroup: vec3<u32>, workgroups: vec3<u32>) {
  let t = flat_workgroup(workgroup, workgroups);
  if t >= step.tokens {
    return;
  }
  let base = t * (HIDDEN / 4u);
  var squares = 0.0;
  for (var i = lane; i < HIDDEN / 4u; i += WORKGROUP) {
    squares += dot(x[base + i], x[base + i]);
  }
  let scale = inverseSqrt(reduce_sum(lane, squares) / f32(HIDDEN) + EPSILON);
  for (var i = lane; i < HIDDEN / 4u; i += WORKGROUP) {
    let w = weight[i];
    let factor = vec4(weight_of(w.x), weight_of(w.y), weight_of(w.z), weight_of(w.w));
    let value = x[base + i] * scale * factor;
    y[base + i] = vec2(pack2x16float(value.xy), pack2x16float(value.zw));
  }
}
