// cross_entropy_forward, cross_entropy_backward: for each row, loss = logsumexp(logits) −
// logits[target], in nats; with GRADIENT the logits are replaced by
// dLogits = (softmax(logits) − onehot(target)) · step.loss_scale, and the padding of a row by 0.
// A target of 0xffffffff gives loss 0 and dLogits 0.
//
// Grid: one workgroup per row of the chunk.
#import lib/step
#import lib/range
#import lib/flat
#import lib/reduce
#import lib/logits

#binding logits: array<f32>   // read_write  f32 [range rows, STRIDE]   rows of this chunk; dLogits in place
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

  let terms = softmax_terms(lane, base);
  let row_max = terms.x;
  let row_sum = terms.y;
  if lane == 0u {
    // Relative to the maximum: a logit of thousands would round the loss away.
    let above = row_max - logits[base + min(target_id, VOCABULARY - 1u)];
    losses[range.row0 + row] = select(0.0, log(row_sum) + above, counted);
  }
  if GRADIENT {
    storageBarrier();
    workgroupBarrier();
    let inverse = 1.0 / row_sum;
    for (var i = lane; i < STRIDE; i += LOADS * WORKGROUP) {
      let values = load_logits(base, i);
      #unroll for (var j = 0u; j < LOADS; j++) {
        let word = i + j * WORKGROUP;
        let probability = exp(values[j] - row_max) * inverse;
        let slope = step.loss_scale * (probability - select(0.0, 1.0, word == target_id));
        if word < STRIDE {
          // Not a factor of 0: NaN would survive it.
          logits[base + word] = select(0.0, slope, counted && word < VOCABULARY);
        }
      }
    }
  }
}
