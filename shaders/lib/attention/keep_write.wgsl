//   7 probabilities  write  f32 [HEADS, query tiles, key tiles, 32, 32]  zeros where the mask excludes
//   8 d_scores       write  as probabilities, in units of SCALE
@group(0) @binding(7) var<storage, read_write> probabilities: array<f32>;
@group(0) @binding(8) var<storage, read_write> d_scores: array<f32>;

fn keep(head: u32, row: u32, key: u32, probability: f32, d_score: f32) {
  let block = kept_block(head, row / KEPT_BLOCK, key / KEPT_BLOCK);
  let at = block + row % KEPT_BLOCK * KEPT_BLOCK + key % KEPT_BLOCK;
  let inside = row < query_count();
  probabilities[at] = select(0.0, probability, inside);
  d_scores[at] = select(0.0, d_score, inside);
}
