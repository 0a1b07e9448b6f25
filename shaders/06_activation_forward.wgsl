// activation_forward: output[t, i] = activate(input[t, i]), or GATED activate(gate[t, i]) · up[t, i]
// (SwiGLU, GeGLU: Shazeer, "GLU variants improve transformer", arXiv:2002.05202)
//
// SUMMED: the sum is kept for what reads it later.
//
// Grid: one invocation for each of the ROW vectors of a row of output.
#import lib/step
#import lib/flat
#import lib/vector
#import lib/stored
#import lib/activation

#if GATED
// gate_up: f32 [tokens, 2 · WIDTH] gate | up; SUMMED: PARTS of it, from a product split along K
#binding gate_up: array<Vector>  // read
#else
#binding input: array<f32>       // read     f32 [tokens, WIDTH]
#endif
#binding output: array<Stored>   // write    f32 or F16 [tokens, WIDTH]  overwritten
#binding step: Step              // uniform
#if SUMMED
#binding whole: array<Vector>    // write    f32 [tokens, 2 · WIDTH]     overwritten: gate | up
#endif

#if GATED
fn gate_up_at(i: u32) -> Vector {
  var sum = gate_up[i];
#if SUMMED
  #unroll for (var part = 1u; part < PARTS; part++) {
    sum += gate_up[i + part * PART_ROW];
  }
  whole[i] = sum;
#endif
  return sum;
}
#endif

fn run(lane: u32, workgroup: vec3<u32>, workgroups: vec3<u32>) {
  let id = flat_id(lane, workgroup, workgroups);
  let t = id / ROW;
  if t < step.tokens {
#if GATED
    let i = t * (2u * ROW) + id % ROW;
    let gate = gate_up_at(i);
#if BY_FOUR
    let activated = activate_four(gate);
#else
    let activated = activate(gate);
#endif
    output[id] = stored(activated * gate_up_at(i + ROW));
#else
    output[id] = activate(input[id]);
#endif
  }
}
