// uses: step or attention/geometry, finite or none, element/quad_f32 or element/quad_f16 or none, delta_quads or none, attention/delta_rows or attention/delta_tensors, flat
// attention_delta_backward: delta = Σ over a head's elements of output · d_output, which equals
// Σ over keys of P · dP (FlashAttention-2's pre-pass). Bindings: lib/attention/delta_*.wgsl.
//
// Grid: one invocation per row and head.
fn run(lane: u32, workgroup: vec3<u32>, workgroups: vec3<u32>) {
  let id = flat_id(lane, workgroup, workgroups);
  if id >= invocation_count() {
    return;
  }
  var total = 0.0;
  for (var v = 0u; v < HEAD_DIM / 4u; v++) {
    total += product(id, v);
  }
  store_delta(id, total);
}
