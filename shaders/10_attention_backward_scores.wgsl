// attention_backward_scores: P = exp(score − lse) and dS = P∘(dP − delta), left for
// 10_attention_backward_sums.wgsl (Dao, arXiv:2307.08691, algorithm 2, with P and dS in memory).
//
//   0 … 6     those of backward rows in lib/attention/operands.wgsl. Binding 5 holds P.
//
// P is 0 where the mask excludes a key. lib/attention/products.wgsl has the layout of P.
//
// The second product takes the registers of the first. So an invocation reads its own P back. Grid: x over heads from
// FIRST_HEAD on and halves of a tile of 128 keys, y over tiles, whose strips `documents` has from STRIP_OF_TILE on.
#import lib/attention/operands
#import lib/attention/score
#import lib/attention/products

#binding d_scores: array<vec4<f32>>  // write  as P, in units of SCALE

fn fetch_a(kind: u32, row: u32, head: u32, v: u32) -> vec4<f32> {
  if kind == 0u {
    return load_query(0u, row, head, v);
  }
  return load_d_output(0u, row, head, v);
}

fn fetch_b(kind: u32, row: u32, kv_head: u32, v: u32) -> vec4<f32> {
  if kind == 0u {
    return load_key(0u, row, kv_head, v);
  }
  return load_value(0u, row, kv_head, v);
}

fn run(lane: u32, workgroup: vec3<u32>, workgroups: vec3<u32>) {
  let strip = documents[STRIP_OF_TILE + workgroup.y];
  let m0 = strip * BM;
  if m0 >= step.tokens {
    return;
  }
  let n0 = (workgroup.y - documents[FIRST_TILE + strip]) * STRIP + workgroup.x % 2u * BN;
  let last_row = min(m0 + BM, step.tokens) - 1u;
  // A window may leave tiles out that nothing reads either.
  if n0 > last_row || n0 < first_key(0u, m0) / STRIP * STRIP {
    return;
  }
  let head = FIRST_HEAD + workgroup.x / 2u;
  let kv_head = head / (HEADS / KV_HEADS);
  let mine = lanes(lane);
  let line = lane / VECTORS_K;
  let step_v = lane % VECTORS_K;

  var seen = array<vec2<u32>, TM>();
  #unroll for (var i = 0u; i < TM; i++) {
    let row = row_of(m0, i, mine.x);
    seen[i] = select(vec2(0u), seen_keys(0u, min(row, last_row)), row <= last_row);
  }
  #unroll for (var kind = 0u; kind < KINDS; kind++) {
    var next_a = array<vec4<f32>, LOADS_A>();
    var next_b = array<vec4<f32>, LOADS_B>();
    #unroll for (var i = 0u; i < LOADS_A; i++) {
      next_a[i] = fetch_a(kind, min(m0 + line + i * (WORKGROUP / VECTORS_K), last_row), head, step_v);
    }
    #unroll for (var i = 0u; i < LOADS_B; i++) {
      next_b[i] = fetch_b(kind, min(n0 + line + i * (WORKGROUP / VECTORS_K), last_row), kv_head, step_v);
    }
    var sums = Sums();
    for (var v = VECTORS_K; v <= VECTORS; v += VECTORS_K) {
      #unroll for (var i = 0u; i < LOADS_A; i++) {
        put_a_rows(lane + i * WORKGROUP, next_a[i]);
      }
      #unroll for (var i = 0u; i < LOADS_B; i++) {
        put_b_rows(lane + i * WORKGROUP, next_b[i]);
      }
      workgroupBarrier();
      if v < VECTORS {
        #unroll for (var i = 0u; i < LOADS_A; i++) {
          next_a[i] = fetch_a(kind, min(m0 + line + i * (WORKGROUP / VECTORS_K), last_row), head, v + step_v);
        }
        #unroll for (var i = 0u; i < LOADS_B; i++) {
          next_b[i] = fetch_b(kind, min(n0 + line + i * (WORKGROUP / VECTORS_K), last_row), kv_head, v + step_v);
        }
      }
      multiply(&sums, mine.x, mine.y);
      workgroupBarrier();
    }
    #unroll for (var i = 0u; i < TM; i++) {
      let row = row_of(m0, i, mine.x);
      let known = min(row, last_row);
      let statistic = select(load_delta(0u, known, head), load_lse(0u, known, head), kind == 0u);
      #unroll for (var j = 0u; j < SIDE; j++) {
        let n = n0 + (j * RIGHT_LANES + mine.y) * 4u;
        store(kind, weight_at(head, row, n), n, seen[i], sums[i][j], statistic);
      }
    }
  }
}

// What four products of a row become: probabilities of keys from `n` on, or score gradients.
fn store(kind: u32, at: u32, n: u32, seen: vec2<u32>, products: vec4<f32>, statistic: f32) {
  if kind == 0u {
    let keys = vec4(n, n + 1u, n + 2u, n + 3u) - seen.x;
    let x = products;
    let scores = vec4(score_of(x.x), score_of(x.y), score_of(x.z), score_of(x.w));
    let weights = vec4(
      probability(scores.x, 0.0, statistic), probability(scores.y, 0.0, statistic),
      probability(scores.z, 0.0, statistic), probability(scores.w, 0.0, statistic));
    let shown = select(vec4(0.0), weights, keys < vec4(seen.y));
    gradient[at] = shown;
    if SOFT_CAPPED {
      d_scores[at] = shown * vec4(score_slope(scores.x), score_slope(scores.y), score_slope(scores.z), score_slope(scores.w));
    }
    return;
  }
  var weights = gradient[at];
  if SOFT_CAPPED {
    weights = d_scores[at];
  }
  // Products of what the mask excludes may be infinite.
  d_scores[at] = select(weights * (products - statistic), vec4(0.0), weights == vec4(0.0));
}
