// attention_delta_backward: delta = Σ over a head's elements of output · d_output, which equals
// Σ over keys of P · dP (FlashAttention-2's pre-pass). Bindings: lib/attention/delta_*.wgsl.
//
// Grid: PARTS invocations per row and head, neighbours of one workgroup, which read its vectors in turn.
var<workgroup> parts: array<f32, WORKGROUP>;

fn run(lane: u32, workgroup: vec3<u32>, workgroups: vec3<u32>) {
  let id = flat_id(lane, workgroup, workgroups);
  let head = id / PARTS;
  let known = head < invocation_count();
  var total = 0.0;
  for (var v = id % PARTS; v < HEAD_DIM / 4u && known; v += PARTS) {
    total += product(head, v);
  }
  if PARTS > 1u {
    parts[lane] = total;
    workgroupBarrier();
    #unroll for (var part = 1u; part < PARTS; part++) {
      total += parts[(lane + part) % WORKGROUP];
    }
  }
  if known && id % PARTS == 0u {
    store_delta(head, total);
  }
}
