// What is drawn from without a bias: the logit after the repetition penalty (Keskar et al.,
// arXiv:1909.05858).
fn scores_are_logits(options: Sampling) -> bool {
  return options.repetition_penalty == 1.0;
}

fn score(i: u32) -> f32 {
  let x = logits[first_logit + i];
  if options.repetition_penalty == 1.0 || ((seen[first_seen + i / 32u] >> (i % 32u)) & 1u) == 0u {
    return x;
  }
  return select(x * options.repetition_penalty, x / options.repetition_penalty, x > 0.0);
}
