// objective_cross_entropy_forward, objective_cross_entropy_backward: 07_cross_entropy.wgsl for other objectives. For
// each row, in nats, with l = logit_of(logits),
//   loss = logsumexp(l) − (1 − SMOOTHING) · l[target] − SMOOTHING · mean(l) + Z_LOSS · logsumexp(l)².
// With GRADIENT each number in the buffer is replaced by step.loss_scale times the gradient with respect to it,
//   logit_slope(l) · (softmax(l) · (1 + 2 · Z_LOSS · logsumexp(l)) − (1 − SMOOTHING) · onehot(target)
//                     − SMOOTHING / VOCABULARY).
// A target of 0xffffffff gives loss 0 and gradient 0. With GRADIENT the padding of a row becomes 0. Label smoothing is
// torch's (Szegedy et al., arXiv:1512.00567), the z-loss PaLM's (Chowdhery et al., arXiv:2204.02311).
//
// Grid: one workgroup per row of the chunk.
#import lib/step
#import lib/range
#import lib/flat
#import lib/reduce
#import lib/logits
#import lib/logit_cap

#binding logits: array<f32>   // read_write  f32 [range rows, STRIDE]   rows of this chunk; the gradient in place
#binding targets: array<u32>  // read        u32 [tokens]
#binding losses: array<f32>   // write       f32 [tokens]               rows of this chunk overwritten
#binding step: Step           // uniform
#binding range: Range         // uniform

fn run(lane: u32, workgroup: vec3<u32>, workgroups: vec3<u32>) {
  let row = flat_workgroup(workgroup, workgroups);
  if row >= range_rows(step.tokens, range) {
    return;
  }
  let base = row * STRIDE;
  let target_id = targets[range.row0 + row];
  let counted = target_id != 0xffffffffu;

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
  for (var i = lane; i < VOCABULARY; i += LOADS * WORKGROUP) {
    let values = load_logits(base, i);
    #unroll for (var j = 0u; j < LOADS; j++) {
      let inside = i + j * WORKGROUP < VOCABULARY;
      let distance = row_max - logit_of(values[j]);
      total += select(0.0, exp(-distance), inside);
      below += select(0.0, distance, inside);
    }
  }
  let row_sum = reduce_sum(lane, total);
  let mean_below = reduce_sum(lane, below) / f32(VOCABULARY);
  let log_sum = log(row_sum);
  let z = row_max + log_sum;
  if lane == 0u {
    let above = row_max - logit_of(logits[base + min(target_id, VOCABULARY - 1u)]);
    let loss = log_sum + (1.0 - SMOOTHING) * above + SMOOTHING * mean_below + Z_LOSS * z * z;
    losses[range.row0 + row] = select(0.0, loss, counted);
  }
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
        let slope = step.loss_scale * (exp(logit - row_max) * factor - wanted) * logit_slope(logit);
        if word < STRIDE {
          // Not a factor of 0: NaN would survive it.
          logits[base + word] = select(0.0, slope, counted && word < VOCABULARY);
        }
      }
    }
  }
}
