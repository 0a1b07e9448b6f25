// embedding_backward: d_weight[v, :] += Σ over positions t with tokens[t] = v of d_output[t, :]
//
//   0 order     read        u32 [tokens]            positions sorted by token, ties by position
//   1 tokens    read        u32 [tokens]
//   2 d_output  read        f32 [tokens, HIDDEN]
//   3 d_weight  read_write  f32 [range.cols, HIDDEN] accumulates; rows of absent tokens are not touched
//   4 step      uniform
//   5 range     uniform
//
// Grid: one invocation per element of [tokens, HIDDEN]. The invocation at the first position of a
// run of equal tokens sums the whole run, so each element has one owner and one order of addition.
// With PADDED the row of the token PADDING is left alone, as torch.nn.Embedding does with padding_idx.
#import lib/step
#import lib/flat
#import lib/range

@group(0) @binding(0) var<storage, read> order: array<u32>;
@group(0) @binding(1) var<storage, read> tokens: array<u32>;
@group(0) @binding(2) var<storage, read> d_output: array<f32>;
@group(0) @binding(3) var<storage, read_write> d_weight: array<f32>;
@group(0) @binding(4) var<uniform> step: Step;
@group(0) @binding(5) var<uniform> range: Range;

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
