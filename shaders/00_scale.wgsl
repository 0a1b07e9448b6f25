// scale_forward: multiplies rows by FACTOR, in place. Of a low-rank product x·Aᵀ·Bᵀ it scales the short
// rows in the middle, and their gradient. (Hu et al., "LoRA", arXiv:2106.09685)
//
//   0 rows   read_write  f32 [tokens, COLUMNS]
//   1 step   uniform
//
// Grid: one invocation per element.
#import lib/step
#import lib/flat

@group(0) @binding(0) var<storage, read_write> rows: array<f32>;
@group(0) @binding(1) var<uniform> step: Step;

fn run(lane: u32, workgroup: vec3<u32>, workgroups: vec3<u32>) {
  let id = flat_id(lane, workgroup, workgroups);
  if id < step.tokens * COLUMNS {
    rows[id] *= FACTOR;
  }
}
