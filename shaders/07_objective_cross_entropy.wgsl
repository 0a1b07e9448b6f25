// objective_cross_entropy_forward, objective_cross_entropy_backward: 07_cross_entropy.wgsl for other objectives. For
// each row, in nats, with l = logit_of(logits),
//   loss = logsumexp(l) − (1 − SMOOTHING) · l[target] − SMOOTHING · mean(l) + Z_LOSS · logsumexp(l)².
// With GRADIENT each number in the buffer is replaced by step.loss_scale times the gradient with respect to it,
//   logit_slope(l) · (softmax(l) · (1 + 2 · Z_LOSS · logsumexp(l)) − (1 − SMOOTHING) · onehot(target)
//                     − SMOOTHING / VOCABULARY).
// A target of 0xffffffff gives loss 0 and gradient 0. With GRADIENT the padding of a row becomes 0. Label smoothing is
// torch's (Szegedy et al., arXiv:1512.00567), the z-loss PaLM's (Chowdhery et al., arXiv:2204.02311).
//
// WEIGHTED multiplies loss and gradient by the row's weight; a weight of 0 is like an ignored target. TEMPERED divides the
// logits by a temperature. SCORED writes four numbers of each row, from which probabilities of all its tokens follow.
//
// SOFT adds a divergence from the probabilities of soft targets, which are classes of one token each and perhaps one of
// the rest (Hinton et al., arXiv:1503.02531): with e = exp(soft_ratio · (l − max)), Q the sum of e over a class and over
// all classes, q their ratio, p the teacher's,
//   KL(p ‖ q) = Σ p · (log p − log q), with gradient e / Q(all) − p · e / Q(class),
//   KL(q ‖ p) = Σ q · (log q − log p), with gradient e / Q(all) · (log q − log p − KL(q ‖ p))
// by soft_ratio · l. The logits of the ids leave the buffer meanwhile, so that no token looks for itself among them.
//
// Grid: one workgroup per row of the chunk.
#import lib/step
#import lib/range
#import lib/flat
#import lib/reduce
#import lib/logits
#if TEMPERED
#import lib/steering
#endif
#import lib/logit_cap

#binding logits: array<f32>        // read_write  f32 [range rows, STRIDE]   rows of this chunk; the gradient in place
#binding targets: array<u32>       // read        u32 [tokens]
#if SCORED
#binding scores: array<vec4<f32>>  // write       (loss, entropy, largest logit, log Σ exp(l − largest)) of each token
#else
#binding losses: array<f32>        // write       f32 [tokens]               rows of this chunk overwritten
#endif
#binding step: Step                // uniform
#binding range: Range              // uniform
#if TEMPERED
#binding steering: Steering        // uniform
#endif
#if WEIGHTED
#binding weights: array<f32>       // read        f32 [tokens]
#endif
#if SOFT
// soft: [tokens, steering.soft_count + 1] of (id, bits of its probability), 0xffffffff for none; then the probability of
// the rest
#binding soft: array<vec2<u32>>    // read

// A logit that has left the buffer, and the least sum of a class: its logarithm is finite.
const AWAY: f32 = -1e30;
const LEAST_CLASS: f32 = 1e-37;

var<workgroup> kept: array<f32, SOFT_IDS>;

// Of one class: its probability, times what is added up of it.
fn divergence(probability: f32, log_ours: f32) -> f32 {
  let forward = probability * (log(max(probability, LEAST_CLASS)) - log_ours);
  let reverse = exp(log_ours) * (log_ours - log(max(probability, LEAST_CLASS)));
  return select(forward, reverse, steering.reverse == 1u);
}
#endif

fn run(lane: u32, workgroup: vec3<u32>, workgroups: vec3<u32>) {
  let row = flat_workgroup(workgroup, workgroups);
  if row >= range_rows(step.tokens, range) {
    return;
  }
  let base = row * STRIDE;
  let target_id = targets[range.row0 + row];
#if WEIGHTED
  let weight = weights[range.row0 + row];
  let counted = target_id != 0xffffffffu && weight != 0.0;
#else
  let counted = target_id != 0xffffffffu;
#endif

  var largest = -1e30;
  for (var i = lane; i < VOCABULARY; i += LOADS * WORKGROUP) {
    let values = load_logits(base, i);
    #unroll for (var j = 0u; j < LOADS; j++) {
      largest = max(largest, values[j]);
    }
  }
  // A cap keeps the order.
  let row_max = logit_of(reduce_max(lane, largest));
  // Relative to the maximum: logits of thousands would round the loss away.
  var total = 0.0;
  var below = 0.0;
#if SCORED
  var mixed = 0.0;
#endif
  for (var i = lane; i < VOCABULARY; i += LOADS * WORKGROUP) {
    let values = load_logits(base, i);
    #unroll for (var j = 0u; j < LOADS; j++) {
      let inside = i + j * WORKGROUP < VOCABULARY;
      let distance = row_max - logit_of(values[j]);
      total += select(0.0, exp(-distance), inside);
      below += select(0.0, distance, inside);
#if SCORED
      mixed += select(0.0, exp(-distance) * distance, inside);
#endif
    }
  }
  let row_sum = reduce_sum(lane, total);
  let mean_below = reduce_sum(lane, below) / f32(VOCABULARY);
  let log_sum = log(row_sum);
  let z = row_max + log_sum;
#if SCORED
  let entropy = log_sum + reduce_sum(lane, mixed) / row_sum;
#endif
  if lane == 0u {
    let above = row_max - logit_of(logits[base + min(target_id, VOCABULARY - 1u)]);
    let loss = log_sum + (1.0 - SMOOTHING) * above + SMOOTHING * mean_below + Z_LOSS * z * z;
#if SCORED
    scores[range.row0 + row] = vec4(select(0.0, loss, counted), entropy, row_max, log_sum);
#elif SOFT
    losses[range.row0 + row] = select(0.0, weight * steering.hard_share * loss, counted);
#elif WEIGHTED
    losses[range.row0 + row] = select(0.0, weight * loss, counted);
#else
    losses[range.row0 + row] = select(0.0, loss, counted);
#endif
  }
#if SOFT
  let ratio = steering.soft_ratio;
  let first = (range.row0 + row) * (steering.soft_count + 1u);
  // Behind the read of the target's logit.
  storageBarrier();
  workgroupBarrier();
  var own = 0.0;
  for (var k = lane; k < steering.soft_count; k += WORKGROUP) {
    let id = soft[first + k].x;
    if id < VOCABULARY {
      kept[k] = logit_of(logits[base + id]) - row_max;
      logits[base + id] = AWAY;
      own += exp(ratio * kept[k]);
    }
  }
  storageBarrier();
  workgroupBarrier();
  var others = 0.0;
  for (var i = lane; i < VOCABULARY; i += LOADS * WORKGROUP) {
    let values = load_logits(base, i);
    #unroll for (var j = 0u; j < LOADS; j++) {
      let inside = i + j * WORKGROUP < VOCABULARY && values[j] > AWAY;
      others += select(0.0, exp(ratio * (logit_of(values[j]) - row_max)), inside);
    }
  }
  let own_sum = reduce_sum(lane, own);
  let rest_sum = max(reduce_sum(lane, others), LEAST_CLASS);
  let has_rest = steering.rest == 1u;
  let log_all = log(max(own_sum + select(0.0, rest_sum, has_rest), LEAST_CLASS));
  let rest = bitcast<f32>(soft[first + steering.soft_count].y);
  let log_rest = log(rest_sum) - log_all;
  var parts = select(0.0, divergence(rest, log_rest), has_rest && lane == 0u);
  for (var k = lane; k < steering.soft_count; k += WORKGROUP) {
    let entry = soft[first + k];
    if entry.x < VOCABULARY {
      parts += divergence(bitcast<f32>(entry.y), ratio * kept[k] - log_all);
    }
  }
  let apart = reduce_sum(lane, parts);
  if lane == 0u && counted {
    losses[range.row0 + row] += weight * steering.soft_factor * apart;
  }
  // Of each e outside the ids.
  let forward = exp(-log_all) - rest / rest_sum;
  let reverse = exp(-log_all) * (log_rest - log(max(rest, LEAST_CLASS)) - apart);
  let by_rest = select(0.0, select(forward, reverse, steering.reverse == 1u), has_rest);
  let soft_scale = steering.soft_factor * ratio;
#endif
  if GRADIENT {
    storageBarrier();
    workgroupBarrier();
    let factor = (1.0 + 2.0 * Z_LOSS * z) / row_sum;
    for (var i = lane; i < STRIDE; i += LOADS * WORKGROUP) {
      let values = load_logits(base, i);
      #unroll for (var j = 0u; j < LOADS; j++) {
        let word = i + j * WORKGROUP;
        let logit = logit_of(values[j]);
        let wanted = select(0.0, 1.0 - SMOOTHING, word == target_id) + SMOOTHING / f32(VOCABULARY);
#if SOFT
        let hard = steering.hard_share * (exp(logit - row_max) * factor - wanted);
        let softened = soft_scale * by_rest * exp(ratio * (logit - row_max));
        let slope = step.loss_scale * weight * (hard + softened) * logit_slope(logit);
#elif WEIGHTED
        let slope = step.loss_scale * weight * (exp(logit - row_max) * factor - wanted) * logit_slope(logit);
#else
        let slope = step.loss_scale * (exp(logit - row_max) * factor - wanted) * logit_slope(logit);
#endif
        if word < STRIDE {
          // Not a factor of 0: NaN would survive it.
          logits[base + word] = select(0.0, slope, counted && word < VOCABULARY);
        }
      }
    }
#if SOFT
    storageBarrier();
    workgroupBarrier();
    for (var k = lane; k < steering.soft_count; k += WORKGROUP) {
      let entry = soft[first + k];
      if entry.x < VOCABULARY && counted {
        let wanted = select(0.0, 1.0 - SMOOTHING, entry.x == target_id) + SMOOTHING / f32(VOCABULARY);
        let hard = steering.hard_share * (exp(kept[k]) * factor - wanted);
        let log_ours = ratio * kept[k] - log_all;
        let probability = bitcast<f32>(entry.y);
        let towards = exp(log_ours) - probability;
        let away = exp(log_ours) * (log_ours - log(max(probability, LEAST_CLASS)) - apart);
        let softened = soft_scale * select(towards, away, steering.reverse == 1u);
        let logit = kept[k] + row_max;
        logits[base + entry.x] = step.loss_scale * weight * (hard + softened) * logit_slope(logit);
      }
    }
#endif
  }
}
