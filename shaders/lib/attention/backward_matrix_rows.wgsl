// The gradients of attention on the fused rows of a batch, by matrices:
//
//   0 qkv        read   f32 or f16 [tokens, STRIDE]           query heads | key heads | value heads
//   1 d_output   read   f32 or f16 [tokens, HEADS · HEAD_DIM]
//   2 lse        read   f32 [tokens, HEADS]                   natural log
//   3 delta      read   f32 [tokens, HEADS]
//   4 documents  read   u32 [tokens], and for keys and values the ends behind them
//   5 gradient   write  f32 or f16 [tokens, STRIDE or D_STRIDE]  the kernel's own columns are overwritten
//   6 step       uniform
//   then with dropout the range, and for rows that were turned the table of angles
@group(0) @binding(0) var<storage, read> qkv: array<qkvQuad>;
@group(0) @binding(1) var<storage, read> d_output: array<d_outputQuad>;
@group(0) @binding(2) var<storage, read> lse: array<f32>;
@group(0) @binding(3) var<storage, read> delta: array<f32>;
@group(0) @binding(4) var<storage, read> documents: array<u32>;
@group(0) @binding(5) var<storage, read_write> gradient: array<d_qkvQuad>;
@group(0) @binding(6) var<uniform> step: Step;

fn load_query(row: u32, head: u32, v: u32) -> Cells {
  return qkv_cells(qkv[row * (STRIDE / 4u) + head * VECTORS + v]);
}

// Keys of kind 0, values of kind 1.
fn load_key_or_value(kind: u32, row: u32, kv_head: u32, v: u32) -> Cells {
  let offset = select(KEY_OFFSET, VALUE_OFFSET, kind == 1u);
  return qkv_cells(qkv[(row * STRIDE + offset + kv_head * HEAD_DIM) / 4u + v]);
}

fn load_d_output(row: u32, head: u32, v: u32) -> Cells {
  return d_output_cells(d_output[(row * HEADS + head) * VECTORS + v]);
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
  gradient[i] = d_qkv_quad(halves[0]);
  gradient[i + HEAD_DIM / 8u] = d_qkv_quad(halves[1]);
}
