// uses: logit/plain or logit/capped, math or none, step, range, flat, reduce_subgroup or reduce_tree
// cross_entropy_forward, cross_entropy_backward: for each row, loss = logsumexp(logits) −
// logits[target], in nats; with GRADIENT the logits are replaced by
// dLogits = (softmax(logits) − onehot(target)) · step.loss_scale. Logits are what logit_of makes of the
// numbers in the buffer, and dLogits goes on to these.
// A target of 0xffffffff gives loss 0 and dLogits 0.
//
//   0 logits   read_write  f32 [range rows, VOCABULARY]   rows of this chunk; dLogits in place
//   1 targets  read        u32 [tokens]
//   2 losses   write       f32 [tokens]                   rows of this chunk overwritten
//   3 step     uniform
//   4 range    uniform
//
// Grid: one workgroup per row of the chunk. One pass finds the maximum and the sum together (online
// softmax: Milakov and Gimelshein, arXiv:1805.02867).
@group(0) @binding(0) var<storage, read_write> logits: array<f32>;
@group(0) @binding(1) var<storage, read> targets: array<u32>;
@group(0) @binding(2) var<storage, read_write> losses: array<f32>;
@group(0) @binding(3) var<uniform> step: Step;
@group(0) @binding(4) var<uniform> range: Range;

fn run(lane: u32, workgroup: vec3<u32>, workgroups: vec3<u32>) {
  let row = flat_workgroup(workgroup, workgroups);
  if row >= range_rows(step.tokens, range) {
    return;
  }
  let base = row * VOCABULARY;
  let target_id = targets[range.row0 + row];
  let counted = target_id != 0xffffffffu;

  var largest = -1e30;
  var total = 0.0;
  for (var i = lane; i < VOCABULARY; i += WORKGROUP) {
    let value = logit_of(logits[base + i]);
    let next = max(largest, value);
    total = total * exp(largest - next) + exp(value - next);
    largest = next;
  }
  let row_max = reduce_max(lane, largest);
  let row_sum = reduce_sum(lane, total * exp(largest - row_max));
  if lane == 0u {
    // Relative to the maximum: a logit of thousands would round the loss away.
    let above = row_max - logit_of(logits[base + min(target_id, VOCABULARY - 1u)]);
    losses[range.row0 + row] = select(0.0, log(row_sum) + above, counted);
  }
  if GRADIENT {
    storageBarrier();
    workgroupBarrier();
    let inverse = 1.0 / row_sum;
    for (var i = lane; i < VOCABULARY; i += WORKGROUP) {
      let logit = logit_of(logits[base + i]);
      let probability = exp(logit - row_max) * inverse;
      let slope = step.loss_scale * (probability - select(0.0, 1.0, i == target_id)) * logit_slope(logit);
      logits[base + i] = select(0.0, slope, counted); // not a factor of 0: NaN would survive it
    }
  }
}
