// The newest key and value beside the ranges of lib/matvec/team_ranges.wgsl: those have only the keys before it
// (05_attention_decode_newest.wgsl). VECTORS is 2 to the power of VECTOR_STEPS, and no more than the narrowest subgroup: as many
// neighbours share the head's score.
//
//   QUERY  query  read  f32 [HEADS · HEAD_DIM]  the row's rotated query heads
//   CACHE  cache  read  f32 [rows, 2 · KV_HEADS · HEAD_DIM]
@group(0) @binding(QUERY) var<storage, read> query: array<vec4<f32>>;
@group(0) @binding(CACHE) var<storage, read> cache: array<vec4<f32>>;

fn keys_in_ranges() -> u32 {
  let keys = seen_keys(0u);
  return keys.y - keys.x - 1u;
}

// WGSL does not say which indices a subgroup has.
fn merging_place(lane: u32) -> u32 {
  return subgroup_index * (WORKGROUP / subgroup_count) + subgroup_lane;
}

fn newest(head: u32, vector: u32) -> RangePart {
  let key = key_row(step.position) * CACHE_VECTORS + head / MEMBERS * VECTORS + vector;
  var score = dot(query[head * VECTORS + vector], cache[key]);
  let value = cache[key + KV_HEADS * VECTORS];
  #unroll for (var s = 0u; s < VECTOR_STEPS; s++) {
    score += subgroupShuffleXor(score, 1u << s);
  }
  return RangePart(decode_score(score * SCORE_SCALE), 1.0, value);
}
