// The kernel of keys and values computes probabilities and score gradients again.
fn keep(head: u32, row: u32, key: u32, probability: f32, d_score: f32) {}
