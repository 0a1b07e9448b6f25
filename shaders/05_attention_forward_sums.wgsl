// uses: math, attention/score, step, attention/mask_rows, attention/products, attention/forward_weights
// attention_forward_sums: the output P·V and the natural logarithm of Σ exp(score), from what
// 05_attention_forward_scores.wgsl has left of each row and 64 keys.
//
//   0 qkv         read   f32 [tokens, STRIDE]  query heads | key heads | value heads
//   1 documents   read   u32 starts, ends, tables of tiles
//   2 weights     read   lib/attention/products.wgsl
//   3 statistics  read   lib/attention/forward_weights.wgsl
//   4 output      write  f32 [tokens, HEADS · HEAD_DIM]
//   5 lse         write  f32 [tokens, HEADS]
//   6 step        uniform
//
// Weights come in units of exp(m) of their own 64 keys. On its way into a tile each is multiplied by exp(m − M), M the
// largest score of the row. An invocation knows M of the row of its number: there are as many as rows.
// Grid: x over columns of BN and heads, y over strips of BM rows.
@group(0) @binding(0) var<storage, read> qkv: array<vec4<f32>>;
@group(0) @binding(1) var<storage, read> documents: array<u32>;
@group(0) @binding(2) var<storage, read> weights: array<vec4<f32>>;
@group(0) @binding(3) var<storage, read> statistics: array<vec2<f32>>;
@group(0) @binding(4) var<storage, read_write> output: array<vec4<f32>>;
@group(0) @binding(5) var<storage, read_write> lse: array<f32>;
@group(0) @binding(6) var<uniform> step: Step;

// By row of the strip: exp(m − M) of the keys whose weights come next, and the sum of all weights.
var<workgroup> factors: array<f32, BM>;
var<workgroup> totals: array<f32, BM>;

fn fetch_b(row: u32, head: u32, v: u32) -> vec4<f32> {
  // Weights of keys past the end are zeros.
  let known = min(row, step.tokens - 1u);
  return qkv[(known * STRIDE + VALUE_OFFSET) / 4u + head / (HEADS / KV_HEADS) * VECTORS + v];
}

// The largest score and the sum of the weights of a row, from those of its keys from `first` to `last`.
fn whole_row(head: u32, row: u32, first: u32, last: u32) -> vec2<f32> {
  var whole = vec2(MASKED, 0.0);
  for (var key = first; key <= last; key += BN) {
    let part = statistics[statistic_at(head, row, key)];
    let largest = max(whole.x, part.x);
    whole = vec2(largest, fma(whole.y, exp2(whole.x - largest), part.y * exp2(part.x - largest)));
  }
  return whole;
}

fn run(lane: u32, workgroup: vec3<u32>, workgroups: vec3<u32>) {
  let m0 = workgroup.y * BM;
  if m0 >= step.tokens {
    return;
  }
  let head = workgroup.x / (HEAD_DIM / BN);
  let v0 = workgroup.x % (HEAD_DIM / BN) * (BN / 4u);
  let last_row = min(m0 + BM, step.tokens) - 1u;
  var k0 = first_key(0u, m0) / BN * BN;
  let whole = whole_row(head, m0 + lane, k0, last_row);
  totals[lane] = whole.y;
  factors[lane] = exp2(statistics[statistic_at(head, m0 + lane, k0)].x - whole.x);
  if v0 == 0u && m0 + lane <= last_row {
    lse[(m0 + lane) * HEADS + head] = whole.x * LN_2 + log(whole.y);
  }
  let mine = lanes(lane);
  let a_line = lane / VECTORS_K;
  let a_step = WORKGROUP / VECTORS_K;
  let b_line = lane / (BN / 4u);
  let b_v = v0 + lane % (BN / 4u);

  var next_a = array<vec4<f32>, LOADS_A>();
  var next_b = array<vec4<f32>, LOADS_B>();
  var at = weight_at(head, m0 + a_line, k0) + lane % VECTORS_K;
  for (var i = 0u; i < LOADS_A; i++) {
    next_a[i] = weights[at + i * a_step * (STRIP / 4u)];
  }
  for (var i = 0u; i < LOADS_B; i++) {
    next_b[i] = fetch_b(k0 + b_line + i * (WORKGROUP / (BN / 4u)), head, b_v);
  }
  workgroupBarrier();
  var sums = Sums();
  while k0 <= last_row {
    for (var i = 0u; i < LOADS_A; i++) {
      put_a_rows(lane + i * WORKGROUP, next_a[i] * factors[a_line + i * a_step]);
    }
    for (var i = 0u; i < LOADS_B; i++) {
      put_b_columns(lane + i * WORKGROUP, next_b[i]);
    }
    workgroupBarrier();
    k0 += BK;
    var largest = MASKED;
    if k0 <= last_row {
      at = weight_at(head, m0 + a_line, k0) + lane % VECTORS_K;
      for (var i = 0u; i < LOADS_A; i++) {
        next_a[i] = weights[at + i * a_step * (STRIP / 4u)];
      }
      for (var i = 0u; i < LOADS_B; i++) {
        next_b[i] = fetch_b(k0 + b_line + i * (WORKGROUP / (BN / 4u)), head, b_v);
      }
      largest = statistics[statistic_at(head, m0 + lane, k0)].x;
    }
    multiply(&sums, mine.x, mine.y);
    factors[lane] = exp2(largest - whole.x);
    workgroupBarrier();
  }

  for (var i = 0u; i < TM; i++) {
    let row = row_of(m0, i, mine.x);
    if row <= last_row {
      for (var j = 0u; j < SIDE; j++) {
        let v = v0 + j * RIGHT_LANES + mine.y;
        output[(row * HEADS + head) * VECTORS + v] = sums[i][j] / totals[row - m0];
      }
    }
  }
}
