// embedding_backward: d_weight[v, :] += Σ over positions t with tokens[t] = v of d_output[t, :]
//
// Grid: one invocation per element of [tokens, HIDDEN]. The invocation at the first position of a
// run of equal tokens sums the whole run, so each element has one owner and one order of addition.
// With PADDED the row of the token PADDING is left alone, as torch.nn.Embedding does with padding_idx.
#import lib/step
#import lib/flat
#import lib/range

#binding order: array<u32>     // read        u32 [tokens]            positions sorted by token, ties by position
#binding tokens: array<u32>    // read        u32 [tokens]
#binding d_output: array<f32>  // read        f32 [tokens, HIDDEN]
#binding d_weight: array<f32>  // read_write  f32 [range.cols, HIDDEN] accumulates; rows of absent tokens are not touched
#binding step: Step            // uniform
#binding range: Range          // uniform

fn run(lane: u32, workgroup: vec3<u32>, workgroups: vec3<u32>) {
  let id = flat_id(lane, workgroup, workgroups);
  let first = id / HIDDEN;
  let column = id % HIDDEN;
  if first >= step.tokens {
    return;
  }
  let token = tokens[order[first]];
#if PADDED
  if token == PADDING {
    return;
  }
#endif
  let row = token - range.col0;
  if row >= range.cols {
    return;
  }
  if first > 0u {
    if tokens[order[first - 1u]] == token {
      return;
    }
  }
  var total = 0.0;
  for (var i = first; i < step.tokens; i++) {
    let t = order[i];
    if tokens[t] != token {
      break;
    }
    total += d_output[t * HIDDEN + column];
  }
  d_weight[row * HIDDEN + column] += total;
}
