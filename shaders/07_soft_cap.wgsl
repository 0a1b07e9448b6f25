// soft_cap_forward: logits = SOFT_CAP · tanh(logits / SOFT_CAP), in place.
//
// Grid: one invocation per element.
#import lib/step
#import lib/flat
#import lib/logit_cap

#binding logits: array<f32>  // read_write  f32 [tokens, COLUMNS]
#binding step: Step          // uniform

fn run(lane: u32, workgroup: vec3<u32>, workgroups: vec3<u32>) {
  let id = flat_id(lane, workgroup, workgroups);
  if id < step.tokens * COLUMNS {
    logits[id] = logit_of(logits[id]);
  }
}
