// attention_backward_key_value with one invocation per key row and owner, no workgroup memory and no
// barrier: for adapters that run on a CPU. Bindings and results are those of
// 10_attention_backward_key_value.wgsl.
//
// Grid: one invocation per key row, owner (a group of MEMBERS query heads) and batch item.
#import lib/flat
#import lib/attention/operands
#import lib/attention/score

const OWNERS: u32 = HEADS / MEMBERS;

fn run(lane: u32, workgroup: vec3<u32>, workgroups: vec3<u32>) {
  let place = flat_place(flat_id(lane, workgroup, workgroups), OWNERS);
  let item = place.x;
  let row = place.y;
  let owner = place.z;
  if row >= key_count() {
    return;
  }
  let kv_head = owner * MEMBERS / (HEADS / KV_HEADS);
  let key = key_of(item, row, kv_head);
  let value = value_of(item, row, kv_head);
  var d_key = Head();
  var d_value = Head();
  let end = end_query(item, row);
  for (var head = owner * MEMBERS; head < (owner + 1u) * MEMBERS; head++) {
    for (var q = first_query(item, row); q < end; q++) {
      var added = 0.0;
#if DENSE
      added = bias(item, head, q, row);
      if added <= UNMASKED {
        continue;
      }
#endif
      let query = query_of(item, q, head);
      let slope = d_output_of(item, q, head);
      let score = score_of(head_dot(query, key));
      let weight = probability(score, added, load_lse(item, q, head));
      let kept = kept_of(words_of(head, q, row), row);
      let d_score = SCALE * score_slope(score) * weight * (kept * head_dot(slope, value) - load_delta(item, q, head));
      d_value = head_axpy(d_value, kept * weight, slope);
      d_key = head_axpy(d_key, d_score, query);
    }
  }
  #unroll for (var i = 0u; i < VECTORS; i++) {
    store_d_key(item, row, owner, i, d_key.v#i);
  }
  #unroll for (var i = 0u; i < VECTORS; i++) {
    store_d_value(item, row, owner, i, d_value.v#i);
  }
}
