// attention_backward_sums: d_query = dS·K, d_key = dSᵀ·Q and d_value = Pᵀ·dO from what
// 10_attention_backward_scores.wgsl has left: KINDS of them, from FIRST_KIND on.
// Where rows are ROTATED the table of lib/rotate.wgsl is bound last.
//
// Grid: x over KINDS, columns of BN and heads from FIRST_HEAD on, y over strips of BM rows. Those that add up most are
// first: the last queries, and the first keys. Half of a workgroup's columns lie in each half of a head, so that an
// invocation has both elements of the pairs that the rotation turns.
#import lib/step
#import lib/rotate
#import lib/attention/mask
#import lib/attention/products

#binding qkv: array<vec4<f32>>            // read     f32 [tokens, STRIDE]           query heads | key heads | value heads
#binding d_output: array<vec4<f32>>       // read     f32 [tokens, HEADS · HEAD_DIM]
#binding documents: array<u32>            // read     u32 starts, ends, tables of tiles
#binding probabilities: array<vec4<f32>>  // read     lib/attention/products.wgsl
#binding d_scores: array<vec4<f32>>       // read     as probabilities, in units of SCALE
#binding gradient: array<vec4<f32>>       // write    f32 [tokens, STRIDE]
#binding step: Step                       // uniform
#if SHARED
// parts: f32 [tokens, 2 · HEADS · HEAD_DIM] keys by query head | values by query head (SHARED: query heads share keys; else
// these go to `gradient`)
#binding parts: array<vec4<f32>>  // write
#endif

const OF_QUERY: u32 = 0u;
const OF_KEY: u32 = 1u;
const OF_VALUE: u32 = 2u;

// Gradients of keys and values go to `parts` by query head, or where each query head has its own to `gradient`.
fn store_d_key(row: u32, v: u32, x: vec4<f32>) {
#if SHARED
  parts[2u * row * HEADS * VECTORS + v] = x;
#else
  gradient[row * (STRIDE / 4u) + HEADS * VECTORS + v] = x;
#endif
}

fn store_d_value(row: u32, v: u32, x: vec4<f32>) {
#if SHARED
  parts[(2u * row + 1u) * HEADS * VECTORS + v] = x;
#else
  gradient[row * (STRIDE / 4u) + 2u * HEADS * VECTORS + v] = x;
#endif
}

fn fetch_a(kind: u32, at: u32) -> vec4<f32> {
  if kind == OF_VALUE {
    return probabilities[at];
  }
  return d_scores[at];
}

fn fetch_b(kind: u32, row: u32, head: u32, v: u32) -> vec4<f32> {
  // Weights of rows past the end are zeros.
  let known = min(row, step.tokens - 1u);
  if kind == OF_VALUE {
    return d_output[(known * HEADS + head) * VECTORS + v];
  }
  let column = select(head, HEADS + head / (HEADS / KV_HEADS), kind == OF_QUERY);
  return qkv[known * (STRIDE / 4u) + column * VECTORS + v];
}

// Where an invocation's first vector of a tile of weights lies.
fn place_a(kind: u32, lane: u32, head: u32, m0: u32, k0: u32) -> u32 {
  if kind == OF_QUERY {
    return weight_at(head, m0 + lane / VECTORS_K, k0) + lane % VECTORS_K;
  }
  return weight_at(head, k0 + lane / (BM / 4u), m0) + lane % (BM / 4u);
}

fn run(lane: u32, workgroup: vec3<u32>, workgroups: vec3<u32>) {
  let place = workgroup.x / KINDS;
  let head = FIRST_HEAD + place / (HEAD_DIM / BN);
  let v0 = place % (HEAD_DIM / BN) * RIGHT_LANES;
  // A kind that is no constant would put each load into a branch, which waits for it.
  #unroll for (var kind = 0u; kind < KINDS; kind++) {
    let strip = select(workgroup.y, workgroups.y - 1u - workgroup.y, FIRST_KIND + kind == OF_QUERY);
    if workgroup.x % KINDS == kind && strip * BM < step.tokens {
      sum(FIRST_KIND + kind, lane, head, strip * BM, v0);
    }
  }
}

fn sum(kind: u32, lane: u32, head: u32, m0: u32, v0: u32) {
  let a_step = select(WORKGROUP / (BM / 4u), WORKGROUP / VECTORS_K, kind == OF_QUERY) * (STRIP / 4u);
  let last_row = min(m0 + BM, step.tokens) - 1u;
  var k0 = m0;
  var k_end = end_query(0u, last_row);
  if kind == OF_QUERY {
    k0 = first_key(0u, m0) / BK * BK;
    k_end = last_row + 1u;
  }
  let mine = lanes(lane);
  let b_line = lane / (BN / 4u);
  let b_v = v0 + lane % RIGHT_LANES + lane / RIGHT_LANES % SIDE * (VECTORS / 2u);

  var next_a = array<vec4<f32>, LOADS_A>();
  var next_b = array<vec4<f32>, LOADS_B>();
  var at = place_a(kind, lane, head, m0, k0);
  #unroll for (var i = 0u; i < LOADS_A; i++) {
    next_a[i] = fetch_a(kind, at + i * a_step);
  }
  #unroll for (var i = 0u; i < LOADS_B; i++) {
    next_b[i] = fetch_b(kind, k0 + b_line + i * (WORKGROUP / (BN / 4u)), head, b_v);
  }
  var sums = Sums();
  while k0 < k_end {
    if kind == OF_QUERY {
      #unroll for (var i = 0u; i < LOADS_A; i++) {
        put_a_rows(lane + i * WORKGROUP, next_a[i]);
      }
    } else {
      #unroll for (var i = 0u; i < LOADS_A; i++) {
        put_a_columns(lane + i * WORKGROUP, next_a[i]);
      }
    }
    #unroll for (var i = 0u; i < LOADS_B; i++) {
      put_b_columns(lane + i * WORKGROUP, next_b[i]);
    }
    workgroupBarrier();
    k0 += BK;
    if k0 < k_end {
      at = place_a(kind, lane, head, m0, k0);
      #unroll for (var i = 0u; i < LOADS_A; i++) {
        next_a[i] = fetch_a(kind, at + i * a_step);
      }
      #unroll for (var i = 0u; i < LOADS_B; i++) {
        next_b[i] = fetch_b(kind, k0 + b_line + i * (WORKGROUP / (BN / 4u)), head, b_v);
      }
    }
    multiply(&sums, mine.x, mine.y);
    workgroupBarrier();
  }

  #unroll for (var i = 0u; i < TM; i++) {
    let row = row_of(m0, i, mine.x);
    if row <= last_row {
      var halves = array(sums[i][0], sums[i][1]);
      if kind != OF_VALUE {
        halves = rotated_back(row, (v0 + mine.y) * 4u, sums[i][0] * SCALE, sums[i][1] * SCALE);
      }
      #unroll for (var j = 0u; j < SIDE; j++) {
        let v = head * VECTORS + v0 + mine.y + j * (VECTORS / 2u);
        if kind == OF_QUERY {
          gradient[row * (STRIDE / 4u) + v] = halves[j];
        } else if kind == OF_KEY {
          store_d_key(row, v, halves[j]);
        } else {
          store_d_value(row, v, halves[j]);
        }
      }
    }
  }
}
