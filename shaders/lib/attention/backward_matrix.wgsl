// The gradients of attention on matrices that a subgroup holds, of operands rounded to f16, with sums in f32. P is
// recomputed from the logsumexp (Dao, arXiv:2307.08691, algorithm 2).
//
// A workgroup owns BQ rows, in strips of STRIP, and walks along columns, BK at a time: 10_attention_backward_*_matrix.wgsl
// say what these are. A strip has a pair of subgroups. The first holds the rows of kind 0 in registers from the beginning
// to the end, the second those of kind 1. Each multiplies its rows by the columns of its kind. These scores go to
// workgroup memory in f32, an invocation makes weights of some of them, and these come back in f16 as the left operand
// of the sums, which stay in registers too.
//
// Columns lie in workgroup memory in f16; the next ones are on their way to registers. Every sum has one owner and one
// order: no atomics.
//
//   then with dropout the range, and where rows are ROTATED the table of lib/rotate.wgsl
#import lib/step
#import lib/rotate
#import lib/matrix
#import lib/attention/mask
#import lib/attention/dropout
#import lib/attention/score
#import lib/attention/assigned
#import lib/attention/qkv_cells

#if F16
#import lib/quad
#endif
#if D_OUTPUT_F16
alias DOutputQuad = vec2<u32>;
#else
alias DOutputQuad = vec4<f32>;
#endif
#if D_QKV_F16
alias GradientQuad = vec2<u32>;
#else
alias GradientQuad = vec4<f32>;
#endif

// qkv: f32 or f16 [tokens, STRIDE] query heads | key heads | value heads
#binding qkv: array<QkvQuad>            // read
#binding d_output: array<DOutputQuad>   // read     f32 or f16 [tokens, HEADS · HEAD_DIM]
#binding lse: array<f32>                // read     f32 [tokens, HEADS]                   natural log
#binding delta: array<f32>              // read     f32 [tokens, HEADS]
#binding documents: array<u32>          // read     u32 [tokens], and for keys and values the ends behind them
// gradient: f32 or f16 [tokens, STRIDE or D_STRIDE] the kernel's own columns are overwritten
#binding gradient: array<GradientQuad>  // write
#binding step: Step                     // uniform

fn load_query(row: u32, head: u32, v: u32) -> Cells {
  return qkv_cells(qkv[row * (STRIDE / 4u) + head * VECTORS + v]);
}

// Keys of kind 0, values of kind 1.
fn load_key_or_value(kind: u32, row: u32, kv_head: u32, v: u32) -> Cells {
  let offset = select(KEY_OFFSET, VALUE_OFFSET, kind == 1u);
  return qkv_cells(qkv[(row * STRIDE + offset + kv_head * HEAD_DIM) / 4u + v]);
}

fn load_d_output(row: u32, head: u32, v: u32) -> Cells {
  let x = d_output[(row * HEADS + head) * VECTORS + v];
#if D_OUTPUT_F16
  return cells_of_f16(x);
#else
  return cells_of(x);
#endif
}

// What a query's weights depend on.
struct Row {
  lse: f32,    // in base 2, less the weights' unit
  delta: f32,
  first: u32,  // key that it sees, and the number of them
  count: u32,
}

fn known_of(row: u32, head: u32) -> Row {
  let at = row * HEADS + head;
  let seen = seen_keys(0u, row);
  return Row(fma(lse[at], LOG2_E, -WEIGHT_BITS), delta[at], seen.x, seen.y);
}

const MOST_HALF: f32 = 65504.0;

// Of a score and the gradient of its probability: what is kept of the probability, and the gradient of the score, both
// in units of 1 / WEIGHT_UNIT, a power of two. So f16 holds probabilities from 2⁻²⁰ on as normal numbers. A gradient
// beyond f16 is held at its largest number: as infinity it would make the whole step one that is skipped.
fn weights_of(product: f32, slope: f32, kept: f32, shown: bool, row: Row) -> vec2<f32> {
  let score = score_of(product);
  let weight = select(0.0, exp2(fma(score, SCORE_UNIT_LOG2, -row.lse)), shown);
  let gradient = score_slope(score) * weight * (kept * slope - row.delta);
  return vec2(kept * weight, clamp(gradient, -MOST_HALF, MOST_HALF));
}
const D_SCORE_UNIT: f32 = SCALE / WEIGHT_UNIT;

// Four elements of each half of a head, into the vector `i` and that half a head on.
fn put_halves(i: u32, halves: array<vec4<f32>, 2>) {
#if D_QKV_F16
  gradient[i] = pack_quad(halves[0]);
  gradient[i + HEAD_DIM / 8u] = pack_quad(halves[1]);
#else
  gradient[i] = halves[0];
  gradient[i + HEAD_DIM / 8u] = halves[1];
#endif
}

// Subgroups that hold rows. Where they are narrower than the widest there are more, which only load.
const PAIRED: u32 = 2u * STRIPS;
const SHEETS: u32 = PAIRED * MATRICES;

alias Fetched = array<array<Cells, 2>, COLUMN_LOADS>;

// The columns of a tile. Those past the end are read from the last one, and have no weight.
fn fetch_columns(lane: u32, c0: u32, end: u32, head: u32) -> Fetched {
  var fetched = Fetched();
  #unroll for (var n = 0u; n < COLUMN_LOADS; n++) {
    let i = lane + n * WORKGROUP;
    let column = min(c0 + i / VECTORS, end - 1u);
    fetched[n] = array(column_cells(0u, column, head, i % VECTORS), column_cells(1u, column, head, i % VECTORS));
  }
  return fetched;
}

fn put_columns(lane: u32, fetched: ptr<function, Fetched>) {
  #unroll for (var n = 0u; n < COLUMN_LOADS; n++) {
    let i = lane + n * WORKGROUP;
    put_cells(0u, i / VECTORS, i % VECTORS, (*fetched)[n][0]);
    put_cells(1u, i / VECTORS, i % VECTORS, (*fetched)[n][1]);
  }
}

// Rows of both kinds into the registers of the subgroups, a strip at a time through the columns' memory.
fn hold_rows(lane: u32, own: u32, first_row: u32, last_row: u32, head: u32, held: ptr<function, Held>) {
  #unroll for (var strip = 0u; strip < STRIPS; strip++) {
    for (var i = lane; i < STRIP * VECTORS; i += WORKGROUP) {
      let row = min(first_row + strip * STRIP + i / VECTORS, last_row);
      put_cells(0u, i / VECTORS, i % VECTORS, row_cells(0u, row, head, i % VECTORS));
      put_cells(1u, i / VECTORS, i % VECTORS, row_cells(1u, row, head, i % VECTORS));
    }
    workgroupBarrier();
    if own / 2u % STRIPS == strip {
      hold(held, own % 2u);
    }
    workgroupBarrier();
  }
}

fn run(invocation: u32, workgroup: vec3<u32>, workgroups: vec3<u32>) {
  let lane = invocation % WORKGROUP;
  let turn = assigned(workgroup, workgroups);
  let owner = turn.y;
  let first_row = turn.x * BQ;
  if first_row >= step.tokens {
    return;
  }
  let last_row = min(first_row + BQ, step.tokens) - 1u;
  let seen = seen_columns(first_row, last_row);
  let end = seen.y;
  let own = own_group(lane);

  var held = Held();
  hold_rows(lane, own, first_row, last_row, owner * MEMBERS, &held);
  var known = Known();
  know_rows(lane, first_row, last_row, owner * MEMBERS, &known);
  var results = Results();

  var head = owner * MEMBERS;
  var c0 = seen.x;
  let tiles = (end - c0 + BK - 1u) / BK * MEMBERS;
  var fetched = fetch_columns(lane, c0, end, head);
  for (var tile = 0u; tile < tiles; tile++) {
    put_columns(lane, &fetched);
    workgroupBarrier();
    let this_head = head;
    let this_c0 = c0;
    know_columns(lane, c0, end, head, &known);
    c0 += BK;
    if c0 >= end {
      c0 = seen.x;
      head++;
    }
    if tile + 1u < tiles {
      fetched = fetch_columns(lane, c0, end, head);
    }
    multiply_columns(&held, own, own % 2u);
    workgroupBarrier();
    let whole = sees_whole(first_row, last_row, this_c0, end);
    weigh(lane, first_row, this_c0, this_head, whole, &known);
    workgroupBarrier();
    add_weighted(&results, own, own / 2u * WEIGHT_KINDS + own % WEIGHT_KINDS, own % WEIGHT_KINDS);
    workgroupBarrier();
  }

  // Both halves of a head at a time, which a rotation mixes: of queries each lies in sheets of its own, else side by side.
  #unroll for (var c = 0u; c < ROUNDS; c++) {
    workgroupBarrier();
    if own < PAIRED {
      #unroll for (var i = 0u; i < MATRICES; i++) {
        #unroll for (var side = 0u; side < WEIGHT_KINDS; side++) {
          put_sums(own * MATRICES + i, side * MATRIX_N, results[i][c + side * ROUNDS]);
        }
      }
    }
    workgroupBarrier();
    for (var v = lane; v < STRIPS * WEIGHT_KINDS * MATRICES * MATRIX_M * (MATRIX_N / 4u); v += WORKGROUP) {
      let four = v % (MATRIX_N / 4u) * 4u;
      let unit = v / (MATRIX_N / 4u);
      let strip = unit / (WEIGHT_KINDS * MATRICES * MATRIX_M);
      let kind = unit / (MATRICES * MATRIX_M) % WEIGHT_KINDS;
      let strip_row = unit % (MATRICES * MATRIX_M);
      let row = first_row + strip * STRIP + strip_row;
      let sheet = (strip * 2u + kind) * MATRICES + strip_row / MATRIX_M;
      let at = strip_row % MATRIX_M * SCORE_PITCH + four;
      let left = four_scores(sheet, at);
      let right = four_scores(sheet + (2u - WEIGHT_KINDS) * MATRICES, at + (WEIGHT_KINDS - 1u) * MATRIX_N);
      if row <= last_row {
        store(row, owner, kind, c * MATRIX_N + four, left, right);
      }
    }
  }
}

fn four_scores(sheet: u32, at: u32) -> vec4<f32> {
  return vec4(scores[sheet][at], scores[sheet][at + 1u], scores[sheet][at + 2u], scores[sheet][at + 3u]);
}
