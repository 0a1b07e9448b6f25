// LOADS logits of a row from `i` on, WORKGROUP apart, whose loads all wait together. Past the vocabulary its last
// logit stands for each.
fn load_logits(base: u32, i: u32) -> array<f32, LOADS> {
  var values = array<f32, LOADS>();
  for (var j = 0u; j < LOADS; j++) {
    values[j] = logits[base + min(i + j * WORKGROUP, VOCABULARY - 1u)];
  }
  return values;
}
