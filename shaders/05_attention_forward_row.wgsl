// attention_forward with one invocation per query row and head, no workgroup memory and no barrier:
// for adapters that run on a CPU. Bindings and results are those of 05_attention_forward.wgsl.
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
  var largest = MASKED;
  var total = 0.0;
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
    let score = score_of(head_dot(q, key_of(item, k, kv_head))) * SCORE_UNIT + added;
    let value = value_of(item, k, kv_head);
    if score > largest {
      let correction = exp(largest - score);
      total *= correction;
      sum = head_scale(correction, sum);
      largest = score;
    }
    let weight = exp(score - largest);
    total += weight;
    sum = head_axpy(sum, weight * kept_of(words_of(head, row, k), k), value);
  }
  total = max(total, LEAST_TOTAL);
  let result = head_scale(1.0 / total, sum);
  #unroll for (var i = 0u; i < VECTORS; i++) {
    store_output(item, row, head, i, result.v#i);
  }
  store_lse(item, row, head, select(MASKED, largest + log(total), largest > UNMASKED));
}
