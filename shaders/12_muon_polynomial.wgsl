// muon_polynomial_forward: a + b·G + c·G² of a symmetric matrix, by which a Newton-Schulz step multiplies (Jordan
// et al., "Muon: An optimizer for hidden layers in neural networks", 2024, with their coefficients).
//
// Grid: one invocation per element.
#import lib/step
#import lib/range
#import lib/flat

#binding gram: array<f32>    // read        f32 [SIDE, SIDE]  G
#binding square: array<f32>  // read_write  f32 [SIDE, SIDE]  G², then the polynomial

fn run(lane: u32, workgroup: vec3<u32>, workgroups: vec3<u32>) {
  let i = flat_id(lane, workgroup, workgroups);
  if i >= SIDE * SIDE {
    return;
  }
  let constant = select(0.0, 3.4445, i / SIDE == i % SIDE);
  square[i] = constant - 4.775 * gram[i] + 2.0315 * square[i];
}
