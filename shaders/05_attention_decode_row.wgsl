// attention_decode, attention_decode_split for adapters that run on a CPU: an invocation takes a
// query head and a range of keys, the head in named vectors, without workgroup memory or barriers.
//
// Bindings and results are those of 05_attention_decode.wgsl.
//
// Grid: an invocation for each batch item, range and query head, the heads of a range side by side.
#import lib/flat
#import lib/attention/decode_operands
#import lib/attention/head

fn load_query(head: u32) -> Head {
  var x: Head;
  #unroll for (var i = 0u; i < VECTORS; i++) {
    x.v#i = query_vector(head, i);
  }
  return x;
}

fn load_key(row: u32, head: u32) -> Head {
  var x: Head;
  #unroll for (var i = 0u; i < VECTORS; i++) {
    x.v#i = key_vector(row, head, i);
  }
  return x;
}

fn load_value(row: u32, head: u32) -> Head {
  var x: Head;
  #unroll for (var i = 0u; i < VECTORS; i++) {
    x.v#i = value_vector(row, head, i);
  }
  return x;
}

fn run(lane: u32, workgroup: vec3<u32>, workgroups: vec3<u32>) {
  let id = flat_id(lane, workgroup, workgroups);
  let item = id / (HEADS * SPLITS);
  let split = id / HEADS % SPLITS;
  if item >= item_count() {
    return;
  }
  let head = item * HEADS + id % HEADS;
  let kv_head = head / MEMBERS;
  let range = decode_keys(split, seen_keys(item));
  if SPLITS > 1u && range.x >= range.y {
    return;
  }
  let q = head_scale(SCORE_SCALE, load_query(head));
  var largest = MASKED;
  var total = 0.0;
  var sum = Head();
  for (var k = range.x; k < range.y; k++) {
    let row = key_row(k);
    let score = decode_score(head_dot(q, load_key(row, kv_head)) * key_scale(row, kv_head));
    if score > largest {
      let correction = exp2(largest - score);
      total *= correction;
      sum = head_scale(correction, sum);
      largest = score;
    }
    let weight = exp2(score - largest);
    total += weight;
    sum = head_axpy(sum, weight * value_scale(row, kv_head), load_value(row, kv_head));
  }
  #unroll for (var i = 0u; i < VECTORS; i++) {
    store_result(head, split, i, sum.v#i, largest, total);
  }
}
