// uses: step, philox, reduce_subgroup or reduce_tree, sample/tensors, sample/score or sample/score_biased, sample/thresholds, sample/log_sum_exp
// sample_forward: draws the next token and makes it the next input: logits → repetition penalty
// → bias → temperature → top-k → top-p → min-p → one draw, all on the GPU, so that several tokens go in
// one submit.
//
//   0 logits   read        f32 [VOCABULARY]
//   1 seen     read_write  u32 [ceil(VOCABULARY / 32)] bit set of tokens already in the text
//   2 token    read_write  u32 [1]                     the drawn token (the next step's input)
//   3 drawn    read_write  vec2<u32> [turns]           (token, bits of its log-probability) a draw
//   4 step     read_write  Step                        position and draws advance by one
//   5 options  uniform
//
// The log-probability is that of the model: before temperature and filters. Thresholds come from
// bisecting the 32 bits of an order-preserving integer image of the logits, so ties are kept
// together and nothing is sorted. Temperature 0 takes the largest logit, the lowest index on ties.
// Grid: one workgroup.
// The token where the running mass, in index order over the tokens at or above the threshold,
// passes the drawn share: chunk sums in parallel, then the chosen chunk walked by its owner.
fn draw(lane: u32, threshold: u32, largest: f32, inverse_temperature: f32, share: f32) {
  let first = lane * LOGITS_PER_LANE;
  let end = min(first + LOGITS_PER_LANE, VOCABULARY);
  var mass = 0.0;
  for (var i = first; i < end; i++) {
    if image(score(i)) >= threshold {
      mass += exp((score(i) - largest) * inverse_temperature);
    }
  }
  chunk_sums[lane] = mass;
  workgroupBarrier();
  var total = 0.0;
  for (var i = 0u; i < WORKGROUP; i++) {
    total += chunk_sums[i];
  }
  let goal = share * total;
  var before = 0.0;
  var owner = 0u;
  var passed = false;
  for (var i = 0u; i < WORKGROUP; i++) {
    if !passed && chunk_sums[i] > 0.0 {
      owner = i; // the last chunk with mass stands when rounding leaves the goal unreached
      passed = before + chunk_sums[i] > goal;
      before += select(chunk_sums[i], 0.0, passed);
    }
  }
  if lane == owner {
    before -= select(chunk_sums[lane], 0.0, passed);
    for (var i = first; i < end; i++) {
      if image(score(i)) >= threshold {
        winner = i;
        before += exp((score(i) - largest) * inverse_temperature);
        if before > goal {
          break;
        }
      }
    }
  }
  workgroupBarrier();
}

fn take_largest(lane: u32, largest: f32) {
  var index = f32(VOCABULARY);
  for (var i = lane; i < VOCABULARY; i += WORKGROUP) {
    if score(i) == largest {
      index = min(index, f32(i)); // exact: a vocabulary is far below 2^24
    }
  }
  let lowest = -reduce_max(lane, -index);
  if lane == 0u {
    winner = min(u32(lowest), VOCABULARY - 1u);
  }
  workgroupBarrier();
}

fn run(lane: u32, workgroup: vec3<u32>, workgroups: vec3<u32>) {
  let log_sum = log_sum_exp(lane);
  var best = -1e30;
  for (var i = lane; i < VOCABULARY; i += WORKGROUP) {
    best = max(best, score(i));
  }
  let largest = reduce_max(lane, best);
  if options.temperature <= 0.0 {
    take_largest(lane, largest);
  } else {
    let inverse_temperature = 1.0 / options.temperature;
    var threshold = 0u;
    if options.top_k > 0u && options.top_k < VOCABULARY {
      threshold = threshold_by_count(lane, f32(options.top_k), 0u);
    }
    if options.top_p < 1.0 {
      threshold = threshold_by_mass(lane, options.top_p, threshold, largest, inverse_temperature);
    }
    if options.min_p > 0.0 {
      threshold = max(threshold, image(largest + log(options.min_p) * options.temperature));
    }
    let bits = philox(vec4(step.draws, 0u, 0u, 0x73616d70u), vec2(options.seed_low, options.seed_high));
    draw(lane, threshold, largest, inverse_temperature, uniform_float(bits.x));
  }
  if lane == 0u {
    let chosen = winner;
    let turn = step.draws - options.turn0;
    drawn[turn] = vec2(chosen, bitcast<u32>(logits[chosen] - log_sum));
    token[0] = chosen;
    seen[chosen / 32u] |= 1u << (chosen % 32u);
    step.position += 1u;
    step.draws += 1u;
  }
}
