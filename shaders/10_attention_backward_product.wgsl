// uses: math, attention/score, step, attention/mask_rows, attention/mask_rows_back
// attention_backward_product: one of the five products of attention's backward pass (Dao, arXiv:2307.08691, algorithm 2,
// with P and dS in memory), each with C = A·B by tiles as in 03_matmul_tiled.wgsl:
//
//   KIND  C                            A    B
//   0     P = exp(Q·Kᵀ − lse)          Q    Kᵀ
//   1     dS = P∘(dO·Vᵀ − delta)       dO   Vᵀ
//   2     d_query = dS·K               dS   K
//   3     d_key, of each query head    dSᵀ  Q
//   4     d_value, of each query head  Pᵀ   dO
//
//   0 qkv         read   f32 [tokens, STRIDE]     query heads | key heads | value heads
//   1 d_output    read   f32 [tokens, HEADS · HEAD_DIM]
//   2 statistics  read   f32 [tokens, HEADS]      lse or delta; else unused
//   3 documents   read   u32 [3, DOCUMENT_ENDS]   starts, ends, tables: from FIRST_TILE on of each strip the tiles
//                                                 before it less its first one, from STRIP_OF_TILE on the tiles' strips
//   4 weights     read   f32 [HEADS, TILES, 128, 128]  P or dS; for P unused
//   5 gradient    write  as weights, or f32 [tokens, D_STRIDE] from column D_OFFSET on
//   6 step        uniform
//
// A strip is 128 queries. It has the tiles of 128 keys from the first that its first query sees to the last, with zeros
// where the mask excludes, and dS in units of SCALE. Grid: x over heads and X_TILES tiles of 64 columns of each, y
// over tiles of P and dS or over strips of rows.
@group(0) @binding(0) var<storage, read> qkv: array<vec4<f32>>;
@group(0) @binding(1) var<storage, read> d_output: array<vec4<f32>>;
@group(0) @binding(2) var<storage, read> statistics: array<f32>;
@group(0) @binding(3) var<storage, read> documents: array<u32>;
@group(0) @binding(4) var<storage, read> weights: array<vec4<f32>>;
@group(0) @binding(5) var<storage, read_write> gradient: array<vec4<f32>>;
@group(0) @binding(6) var<uniform> step: Step;

const SCORES: bool = KIND < 2u;
const BY_KEY: bool = KIND > 2u;

// By vector of an invocation, step of K and lane, with two vectors of padding. Steps of K lie by component, and then by
// vector of K.
var<workgroup> tile_a: array<array<array<vec4<f32>, 18>, 16>, 2>;
var<workgroup> tile_b: array<array<array<vec4<f32>, 10>, 16>, 2>;

// Where a row's four keys from `key` on lie.
fn weight_at(head: u32, row: u32, key: u32) -> u32 {
  let tile = head * TILES + documents[FIRST_TILE + row / 128u] + key / 128u;
  return (tile * 128u + row % 128u) * 32u + key % 128u / 4u;
}

// Of the rows of a head that A or B has besides weights, the vector `v` of one.
fn row_of_a(row: u32, head: u32, v: u32) -> vec4<f32> {
  if KIND == 0u {
    return qkv[row * (STRIDE / 4u) + head * VECTORS + v];
  }
  return d_output[(row * HEADS + head) * VECTORS + v];
}

fn row_of_b(row: u32, head: u32, v: u32) -> vec4<f32> {
  let kv_head = head / (HEADS / KV_HEADS);
  // Weights of rows past the end are zeros.
  let known = min(row, step.tokens - 1u);
  if KIND == 4u {
    return d_output[(known * HEADS + head) * VECTORS + v];
  }
  if KIND == 3u {
    return qkv[known * (STRIDE / 4u) + head * VECTORS + v];
  }
  return qkv[known * (STRIDE / 4u) + select(HEADS, HEADS + KV_HEADS, KIND == 1u) * VECTORS + kv_head * VECTORS + v];
}

fn put_a(i: u32, x: vec4<f32>) {
  if BY_KEY {
    let k = i / 32u;
    tile_a[i % 32u / 16u][k % 4u * 4u + k / 4u][i % 16u] = x;
  } else {
    let m = i / 4u;
    for (var q = 0u; q < COMPONENTS; q++) {
      tile_a[m / 64u][q * 4u + i % 4u][m / 4u % 16u][m % 4u] = x[q];
    }
  }
}

fn put_b(i: u32, x: vec4<f32>) {
  if SCORES {
    let n = i / 4u;
    for (var q = 0u; q < COMPONENTS; q++) {
      tile_b[n / 32u][q * 4u + i % 4u][n / 4u % 8u][n % 4u] = x[q];
    }
  } else {
    let k = i / 16u;
    tile_b[i % 16u / 8u][k % 4u * 4u + k / 4u][i % 8u] = x;
  }
}

fn load_a(lane: u32, i: u32, head: u32, m0: u32, k0: u32) -> vec4<f32> {
  if BY_KEY {
    return weights[weight_at(head, k0 + lane / 32u, m0) + lane % 32u + i * 128u];
  }
  if SCORES {
    return row_of_a(m0 + lane / 4u + i * 32u, head, k0 / 4u + lane % 4u);
  }
  return weights[weight_at(head, m0 + lane / 4u, k0) + lane % 4u + i * 1024u];
}

fn load_b(lane: u32, i: u32, head: u32, n0: u32, k0: u32) -> vec4<f32> {
  if SCORES {
    return row_of_b(n0 + lane / 4u + i * 32u, head, k0 / 4u + lane % 4u);
  }
  return row_of_b(k0 + lane / 16u + i * 8u, head, n0 / 4u + lane % 16u);
}

// Four probabilities or score gradients of keys from `n` on, from their products.
fn store_scores(head: u32, row: u32, n: u32, x: vec4<f32>) {
  let at = weight_at(head, row, n);
  let inside = row < step.tokens;
  let statistic = statistics[min(row, step.tokens - 1u) * HEADS + head];
  if KIND == 1u {
    let p = weights[at];
    // Products of what the mask excludes may be infinite.
    gradient[at] = select(p * (x - statistic), vec4(0.0), p == vec4(0.0));
    return;
  }
  let seen = seen_keys(0u, min(row, step.tokens - 1u));
  let shown = vec4(n, n + 1u, n + 2u, n + 3u) - seen.x < vec4(select(0u, seen.y, inside));
  let p = vec4(
    probability(x.x, 0.0, statistic), probability(x.y, 0.0, statistic),
    probability(x.z, 0.0, statistic), probability(x.w, 0.0, statistic));
  gradient[at] = select(vec4(0.0), p, shown);
}

fn run(lane: u32, workgroup: vec3<u32>, workgroups: vec3<u32>) {
  let head = workgroup.x / X_TILES;
  var strip = workgroup.y;
  if SCORES {
    strip = documents[STRIP_OF_TILE + workgroup.y];
  }
  let m0 = strip * 128u;
  if m0 >= step.tokens {
    return;
  }
  let end = min(m0 + 128u, step.tokens);
  var n0 = workgroup.x % X_TILES * 64u;
  var k0 = 0u;
  var k_end = HEAD_DIM;
  if SCORES {
    n0 += (workgroup.y - documents[FIRST_TILE + strip]) * 128u;
    if n0 >= end {
      return;
    }
  } else if BY_KEY {
    k0 = m0;
    k_end = end_query(0u, end - 1u);
  } else {
    k0 = first_key(0u, m0) / 16u * 16u;
    k_end = end;
  }
  // In the words of 03_matmul_tiled.wgsl.
  let lane_m = lane / 32u * 4u + lane % 32u / 16u * 2u + lane % 2u;
  let lane_n = lane / 2u % 8u;

  var next_a = array<vec4<f32>, LOADS_A>();
  var next_b = array<vec4<f32>, LOADS_B>();
  for (var i = 0u; i < LOADS_A; i++) {
    next_a[i] = load_a(lane, i, head, m0, k0);
  }
  for (var i = 0u; i < LOADS_B; i++) {
    next_b[i] = load_b(lane, i, head, n0, k0);
  }
  var sums = array<array<vec4<f32>, 2>, TM>();
  while k0 < k_end {
    for (var i = 0u; i < LOADS_A; i++) {
      put_a(lane + i * WORKGROUP, next_a[i]);
    }
    for (var i = 0u; i < LOADS_B; i++) {
      put_b(lane + i * WORKGROUP, next_b[i]);
    }
    workgroupBarrier();
    k0 += 16u;
    if k0 < k_end {
      for (var i = 0u; i < LOADS_A; i++) {
        next_a[i] = load_a(lane, i, head, m0, k0);
      }
      for (var i = 0u; i < LOADS_B; i++) {
        next_b[i] = load_b(lane, i, head, n0, k0);
      }
    }
    for (var k = 0u; k < BK; k++) {
      let right = array(tile_b[0][k][lane_n], tile_b[1][k][lane_n]);
      for (var i = 0u; i < SIDE; i++) {
        let left = tile_a[i][k][lane_m];
        for (var j = 0u; j < SIDE; j++) {
          sums[i * 4u][j] = fma(vec4(left.x), right[j], sums[i * 4u][j]);
          sums[i * 4u + 1u][j] = fma(vec4(left.y), right[j], sums[i * 4u + 1u][j]);
          sums[i * 4u + 2u][j] = fma(vec4(left.z), right[j], sums[i * 4u + 2u][j]);
          sums[i * 4u + 3u][j] = fma(vec4(left.w), right[j], sums[i * 4u + 3u][j]);
        }
      }
    }
    workgroupBarrier();
  }

  for (var i = 0u; i < TM; i++) {
    let row = m0 + (i / 4u * 16u + lane_m) * 4u + i % 4u;
    for (var j = 0u; j < SIDE; j++) {
      let n = n0 + (j * 8u + lane_n) * 4u;
      if SCORES {
        store_scores(head, row, n, sums[i][j]);
      } else if row < end {
        gradient[(row * D_STRIDE + D_OFFSET + head * HEAD_DIM + n) / 4u] = sums[i][j] * FACTOR;
      }
    }
  }
}
