// activation_backward: the gradient of what 06_activation_forward.wgsl reads, GATED of gate and up, and its output once more
// (it is cheaper to recompute than to keep).
//
// Grid: one invocation for each of the ROW vectors of a row of output.
#import lib/step
#import lib/flat
#import lib/vector
#import lib/stored
#import lib/activation

#if GATED
#binding gate_up: array<Vector>    // read     f32 [tokens, 2 · WIDTH]         gate | up
#binding d_gate_up: array<Stored>  // write    f32 or F16 [tokens, 2 · WIDTH]  overwritten
#else
#binding input: array<f32>         // read     f32 [tokens, WIDTH]
#binding d_input: array<f32>       // write    f32 [tokens, WIDTH]             overwritten
#endif
// d_output: f32 [tokens, WIDTH] SUMMED: PARTS of it, from a product split along K
#binding d_output: array<Vector>   // read
#binding output: array<Stored>     // write    f32 or F16 [tokens, WIDTH]      overwritten
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
#if GATED
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
#else
    d_input[id] = slope_at(id) * activate_derivative(input[id]);
    output[id] = activate(input[id]);
#endif
  }
}
