// scale_forward: multiplies rows by FACTOR, in place. Of a low-rank product x·Aᵀ·Bᵀ it scales the short
// rows in the middle, and their gradient. (Hu et al., "LoRA", arXiv:2106.09685)
//
// Grid: one invocation per element.
#import lib/step
#import lib/flat

#binding rows: array<f32>  // read_write  f32 [tokens, COLUMNS]
#binding step: Step        // uniform

fn run(lane: u32, workgroup: vec3<u32>, workgroups: vec3<u32>) {
  let id = flat_id(lane, workgroup, workgroups);
  if id < step.tokens * COLUMNS {
    rows[id] *= FACTOR;
  }
}
