// gated_activation_backward: gradients of gate and up, and the forward's output once more (it is
// cheaper to recompute than to keep).
//
// Grid: one invocation for each of the ROW vectors of a row of output.
#import lib/step
#import lib/flat
#import lib/vector
#import lib/stored
#import lib/activation

#binding gate_up: array<Vector>    // read     f32 [tokens, 2 · WIDTH]         gate | up
// d_output: f32 [tokens, WIDTH] SUMMED: PARTS of it, from a product split along K
#binding d_output: array<Vector>   // read
#binding d_gate_up: array<Stored>  // write    f32 or F16 [tokens, 2 · WIDTH]  overwritten
#binding output: array<Stored>     // write    f32 or F16 [tokens, WIDTH]      overwritten: activate(gate) · up
#binding step: Step                // uniform

fn slope_at(i: u32) -> Vector {
  var sum = d_output[i];
#if SUMMED
  #unroll for (var part = 1u; part < PARTS; part++) {
    sum += d_output[i + part * PART_ROW];
  }
#endif
  return sum;
}

fn run(lane: u32, workgroup: vec3<u32>, workgroups: vec3<u32>) {
  let id = flat_id(lane, workgroup, workgroups);
  let t = id / ROW;
  if t < step.tokens {
    let i = t * (2u * ROW) + id % ROW;
    let gate = gate_up[i];
    let up = gate_up[i + ROW];
#if BY_FOUR
    let activated = activate_four(gate);
    let derivative = activate_derivative_four(gate);
#else
    let activated = activate(gate);
    let derivative = activate_derivative(gate);
#endif
    let slope = slope_at(id);
    d_gate_up[i] = stored(slope * up * derivative);
    d_gate_up[i + ROW] = stored(slope * activated);
    output[id] = stored(activated * up);
  }
}
