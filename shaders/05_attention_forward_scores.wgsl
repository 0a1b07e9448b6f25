// uses: math, attention/score, step, attention/mask_rows, attention/products, attention/score_tiles, attention/forward_weights
// attention_forward_scores: of each query and 64 keys the weights exp(score − m) with the largest score m, and m and
// their sum, left for 05_attention_forward_sums.wgsl. So no weight is larger than 1, and none has to be computed again
// once the largest score of the whole row is known (Dao, arXiv:2307.08691, section 3.1, with weights in memory).
//
//   0 qkv         read   f32 [tokens, STRIDE]  query heads | key heads | value heads
//   1 documents   read   u32 starts, ends, tables of tiles
//   2 weights     write  lib/attention/products.wgsl
//   3 statistics  write  lib/attention/forward_weights.wgsl
//   4 step        uniform
//
// A weight is 0 where the mask excludes a key. Grid: lib/attention/score_tiles.wgsl.
@group(0) @binding(0) var<storage, read> qkv: array<vec4<f32>>;
@group(0) @binding(1) var<storage, read> documents: array<u32>;
@group(0) @binding(2) var<storage, read_write> weights: array<vec4<f32>>;
@group(0) @binding(3) var<storage, read_write> statistics: array<vec2<f32>>;
@group(0) @binding(4) var<uniform> step: Step;

fn fetch_a(kind: u32, row: u32, head: u32, v: u32) -> vec4<f32> {
  return qkv[row * (STRIDE / 4u) + head * VECTORS + v];
}

fn fetch_b(kind: u32, row: u32, kv_head: u32, v: u32) -> vec4<f32> {
  return qkv[(row * STRIDE + KEY_OFFSET) / 4u + kv_head * VECTORS + v];
}

fn run(lane: u32, workgroup: vec3<u32>, workgroups: vec3<u32>) {
  multiply_tile(lane, workgroup);
}

// Invocations that share a row meet in the memory of the tiles, which nothing reads any more: a line of BK for each
// LEFT_LANES, a vector for four rows.
fn finish(kind: u32, tile: Tile, seen: ptr<function, Seen>, sums: ptr<function, Sums>) {
  var largest = array<vec4<f32>, SIDE>();
  for (var i = 0u; i < TM; i++) {
    for (var j = 0u; j < SIDE; j++) {
      let n = tile.n0 + (j * RIGHT_LANES + tile.lane_n) * 4u;
      let keys = vec4(n, n + 1u, n + 2u, n + 3u) - (*seen)[i].x;
      let x = (*sums)[i][j];
      let scores = vec4(score_of(x.x), score_of(x.y), score_of(x.z), score_of(x.w)) * SCORE_UNIT_LOG2;
      (*sums)[i][j] = select(vec4(MASKED), scores, keys < vec4((*seen)[i].y));
    }
    let both = max((*sums)[i][0], (*sums)[i][1]);
    largest[i / 4u][i % 4u] = max(max(both.x, both.y), max(both.z, both.w));
  }
  for (var h = 0u; h < SIDE; h++) {
    tile_b[h][tile.lane_m][tile.lane_n] = largest[h];
  }
  workgroupBarrier();
  for (var h = 0u; h < SIDE; h++) {
    for (var lane_n = 0u; lane_n < RIGHT_LANES; lane_n++) {
      largest[h] = max(largest[h], tile_b[h][tile.lane_m][lane_n]);
    }
  }

  var totals = array<vec4<f32>, SIDE>();
  for (var i = 0u; i < TM; i++) {
    for (var j = 0u; j < SIDE; j++) {
      let n = tile.n0 + (j * RIGHT_LANES + tile.lane_n) * 4u;
      let scores = (*sums)[i][j];
      let kept = select(vec4(0.0), exp2(scores - largest[i / 4u][i % 4u]), scores > vec4(UNMASKED));
      weights[weight_at(tile.head, row_of(tile.m0, i, tile.lane_m), n)] = kept;
      totals[i / 4u][i % 4u] += (kept.x + kept.y) + (kept.z + kept.w);
    }
  }
  for (var h = 0u; h < SIDE; h++) {
    tile_a[h][tile.lane_m][tile.lane_n] = totals[h];
  }
  workgroupBarrier();
  if tile.lane_n == 0u {
    for (var h = 0u; h < SIDE; h++) {
      for (var lane_n = 1u; lane_n < RIGHT_LANES; lane_n++) {
        totals[h] += tile_a[h][tile.lane_m][lane_n];
      }
    }
    for (var i = 0u; i < TM; i++) {
      let at = statistic_at(tile.head, row_of(tile.m0, i, tile.lane_m), tile.n0);
      statistics[at] = vec2(largest[i / 4u][i % 4u], totals[i / 4u][i % 4u]);
    }
  }
}
