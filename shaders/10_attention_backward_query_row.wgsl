// attention_backward_query with one invocation per query row and head, no workgroup memory and no
// barrier: for adapters that run on a CPU. Bindings and results are those of
// 10_attention_backward_query.wgsl.
//
// Grid: one invocation per row, head and batch item.
#import lib/flat
#import lib/attention/operands
#import lib/attention/score

fn run(lane: u32, workgroup: vec3<u32>, workgroups: vec3<u32>) {
  let place = flat_place(flat_id(lane, workgroup, workgroups), HEADS);
  let item = place.x;
  let row = place.y;
  let head = place.z;
  if row >= query_count() {
    return;
  }
  let kv_head = head / (HEADS / KV_HEADS);
  let q = query_of(item, row, head);
  let slope = d_output_of(item, row, head);
  let row_lse = load_lse(item, row, head);
  let row_delta = load_delta(item, row, head);
  var sum = Head();
  let end = end_key(item, row);
  for (var k = first_key(item, row); k < end; k++) {
    var added = 0.0;
#if DENSE
    added = bias(item, head, row, k);
    if added <= UNMASKED {
      continue;
    }
#endif
    let key = key_of(item, k, kv_head);
    let d_weight = kept_of(words_of(head, row, k), k) * head_dot(slope, value_of(item, k, kv_head));
    let score = score_of(head_dot(q, key));
    let weight = probability(score, added, row_lse);
    sum = head_axpy(sum, SCALE * score_slope(score) * weight * (d_weight - row_delta), key);
  }
  #unroll for (var i = 0u; i < VECTORS; i++) {
    store_d_query(item, row, head, i, sum.v#i);
  }
}
