// soft_cap_forward: logits = SOFT_CAP · tanh(logits / SOFT_CAP), in place.
//
//   0 logits  read_write  f32 [tokens, COLUMNS]
//   1 step    uniform
//
// Grid: one invocation per element.
#import lib/step
#import lib/flat
#import lib/logit_cap

@group(0) @binding(0) var<storage, read_write> logits: array<f32>;
@group(0) @binding(1) var<uniform> step: Step;

fn run(lane: u32, workgroup: vec3<u32>, workgroups: vec3<u32>) {
  let id = flat_id(lane, workgroup, workgroups);
  if id < step.tokens * COLUMNS {
    logits[id] = logit_of(logits[id]);
  }
}
