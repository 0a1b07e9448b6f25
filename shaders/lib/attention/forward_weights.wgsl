// Where the forward pass by products keeps what it knows of a query and of the BN keys that `key` is among: the largest
// score in base 2, and the sum of the weights in its units. f32 pairs [HEADS, TILES, 2, 128], in the order of the tiles.
fn statistic_at(head: u32, row: u32, key: u32) -> u32 {
  let tile = head * TILES + documents[FIRST_TILE + row / STRIP] + key / STRIP;
  return (tile * (STRIP / BN) + key % STRIP / BN) * STRIP + row % STRIP;
}
