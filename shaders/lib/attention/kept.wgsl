// Probabilities and score gradients that the kernel of queries leaves for that of keys and values, in
// blocks of KEPT_BLOCK queries × KEPT_BLOCK keys; blocks that the mask excludes are neither written nor read.

fn kept_block(head: u32, query_tile: u32, key_tile: u32) -> u32 {
  return ((head * KEPT_TILES + query_tile) * KEPT_TILES + key_tile) * KEPT_BLOCK * KEPT_BLOCK;
}
