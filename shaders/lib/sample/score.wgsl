// What is drawn from: the logit after the repetition penalty (Keskar et al., arXiv:1909.05858). BIASED: plus the token's
// bias. A masked token has a bias of -1e30, far below any logit: the host sets top_k to the number of the others, whose
// threshold leaves it out.
//
//   6 bias     read        f32 [VOCABULARY]
#if BIASED
@group(0) @binding(6) var<storage, read> bias: array<f32>;
#endif

fn scores_are_logits(options: Sampling) -> bool {
#if BIASED
  return false;
#else
  return options.repetition_penalty == 1.0;
#endif
}

fn score(i: u32) -> f32 {
  let x = logits[first_logit + i];
  if options.repetition_penalty == 1.0 || ((seen[first_seen + i / 32u] >> (i % 32u)) & 1u) == 0u {
#if BIASED
    return x + bias[i];
#else
    return x;
#endif
  }
  let penalised = select(x * options.repetition_penalty, x / options.repetition_penalty, x > 0.0);
#if BIASED
  return penalised + bias[i];
#else
  return penalised;
#endif
}
