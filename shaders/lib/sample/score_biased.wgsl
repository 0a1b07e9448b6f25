// What is drawn from with a bias: the logit after the repetition penalty (Keskar et al.,
// arXiv:1909.05858), plus the token's bias. A masked token has a bias of -1e30, far below any logit: the
// host sets top_k to the number of the others, whose threshold leaves it out.
//
//   6 bias     read        f32 [VOCABULARY]
@group(0) @binding(6) var<storage, read> bias: array<f32>;

fn scores_are_logits(options: Sampling) -> bool {
  return false;
}

fn score(i: u32) -> f32 {
  let x = logits[first_logit + i];
  if options.repetition_penalty == 1.0 || ((seen[first_seen + i / 32u] >> (i % 32u)) & 1u) == 0u {
    return x + bias[i];
  }
  return select(x * options.repetition_penalty, x / options.repetition_penalty, x > 0.0) + bias[i];
}
