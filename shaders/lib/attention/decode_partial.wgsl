// What a range leaves for the merge: its weighted sum of values, its largest score and its sum of
// weights, the last two in one vector behind the sum.
#operand partials: array<vec4<f32>>

// First key of a range and the one behind its last: none for ranges behind the active ones.
fn decode_keys(split: u32, seen: vec2<u32>) -> vec2<u32> {
  let length = range_length(seen.y - seen.x);
  let start = seen.x + split * length;
  return vec2(start, min(start + length, seen.y));
}

fn store_result(head: u32, split: u32, vector: u32, sum: vec4<f32>, largest: f32, total: f32) {
  let place = (head * SPLITS + split) * PARTIAL_VECTORS;
  #partials[place + vector] = sum;
  if vector == 0u {
    #partials[place + VECTORS] = vec4(largest, total, 0.0, 0.0);
  }
}
