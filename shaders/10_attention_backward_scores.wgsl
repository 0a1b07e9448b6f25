// uses: math, attention/score, attention/backward_rows, step, attention/mask_rows, attention/products, attention/score_tiles
// attention_backward_scores: P = exp(score − lse) and dS = P∘(dP − delta), left for
// 10_attention_backward_sums.wgsl (Dao, arXiv:2307.08691, algorithm 2, with P and dS in memory).
//
//   0 … 6     the bindings of lib/attention/backward_rows.wgsl. Binding 5 holds P.
//   7 d_scores  write  as P, in units of SCALE
//
// P is 0 where the mask excludes a key. lib/attention/products.wgsl has the layout of P.
//
// The second product takes the registers of the first. So an invocation reads its own P back. Grid:
// lib/attention/score_tiles.wgsl.
@group(0) @binding(7) var<storage, read_write> d_scores: array<vec4<f32>>;

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
  multiply_tile(lane, workgroup);
}

fn finish(kind: u32, tile: Tile, seen: ptr<function, Seen>, sums: ptr<function, Sums>) {
  for (var i = 0u; i < TM; i++) {
    let row = row_of(tile.m0, i, tile.lane_m);
    let known = min(row, tile.last_row);
    let statistic = select(load_delta(0u, known, tile.head), load_lse(0u, known, tile.head), kind == 0u);
    for (var j = 0u; j < SIDE; j++) {
      let n = tile.n0 + (j * RIGHT_LANES + tile.lane_n) * 4u;
      store(kind, weight_at(tile.head, row, n), n, (*seen)[i], (*sums)[i][j], statistic);
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
