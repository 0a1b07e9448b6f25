// position_backward: d_weight[p, :] += Σ over documents that reach position p of d_output there
//
// Grid: one invocation per element of [tokens, HIDDEN], the positions that a batch can reach. It walks
// over the documents, so that each element has one owner and one order of addition.
#import lib/step
#import lib/flat
#import lib/range

// documents: u32 [ENDS + tokens] start of each row's document; ENDS further its end
#binding documents: array<u32>  // read
#binding d_output: array<f32>   // read        f32 [tokens, HIDDEN]
#binding d_weight: array<f32>   // read_write  f32 [range.cols, HIDDEN]    accumulates; rows that no document reaches stay
#binding step: Step             // uniform
#binding range: Range           // uniform

fn run(lane: u32, workgroup: vec3<u32>, workgroups: vec3<u32>) {
  let id = flat_id(lane, workgroup, workgroups);
  let position = id / HIDDEN;
  let row = position - range.col0;
  if position >= step.tokens || row >= range.cols {
    return;
  }
  let column = id % HIDDEN;
  var total = 0.0;
  var start = 0u;
  while start + position < step.tokens {
    let end = documents[ENDS + start];
    if start + position < end {
      total += d_output[(start + position) * HIDDEN + column];
    }
    start = end;
  }
  d_weight[row * HIDDEN + column] += total;
}
