// muon_update_forward: a step along an orthogonalised direction, with decoupled weight decay (torch.optim.Muon,
// its rate adjusted to AdamW's as Liu et al., "Muon is Scalable for LLM Training", arXiv:2502.16982).
//
// Grid: one invocation per element of COUNT.
#import lib/step
#import lib/range
#import lib/flat

#binding weights: array<f32>    // read_write  f32 [shard]
#binding direction: array<f32>  // read        f32 [rows, columns]
#binding optimizer: array<f32>  // read        f32 [4]   of step_decision; a zero in slot 3 leaves everything as it is
#binding step: Step             // uniform
#binding range: Range           // uniform     row0: first weight, col0: first element of direction, cols: 0 for no decay

fn run(lane: u32, workgroup: vec3<u32>, workgroups: vec3<u32>) {
  let i = flat_id(lane, workgroup, workgroups);
  if i >= COUNT || optimizer[3] == 0.0 {
    return;
  }
  let decay = select(step.learning_rate * step.weight_decay, 0.0, range.cols == 0u);
  let weight = weights[range.row0 + i];
  let along = direction[range.col0 + i];
  weights[range.row0 + i] = weight - decay * weight - step.learning_rate * RATE * along;
}
