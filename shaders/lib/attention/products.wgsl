// Tiles of attention's backward pass by plain products, as 03_matmul_tiled.wgsl has them: BM×BN results of a
// workgroup, 8×8 of an invocation, K outermost in both tiles, BK steps of it at a time.
const LEFT_LANES: u32 = BM / 8u;
const RIGHT_LANES: u32 = BN / 8u;
const LEFT_PATCH: u32 = min(LEFT_LANES, 4u);
const RIGHT_PATCH: u32 = min(RIGHT_LANES, 8u);

alias Sums = array<array<vec4<f32>, 2>, 8>;

// By vector of an invocation, step of K and lane. Steps of K lie by component, and then by vector of K.
var<workgroup> tile_a: array<array<array<vec4<f32>, LEFT_LANES + PAD>, BK>, 2>;
var<workgroup> tile_b: array<array<array<vec4<f32>, RIGHT_LANES + PAD>, BK>, 2>;

// As in 03_matmul_tiled.wgsl.
fn lanes(lane: u32) -> vec2<u32> {
  let block = lane / (LEFT_PATCH * RIGHT_PATCH);
  let lane_m = block / (RIGHT_LANES / RIGHT_PATCH) * LEFT_PATCH + lane % (LEFT_PATCH * RIGHT_PATCH) / (2u * RIGHT_PATCH) * 2u + lane % 2u;
  let lane_n = block % (RIGHT_LANES / RIGHT_PATCH) * RIGHT_PATCH + lane / 2u % RIGHT_PATCH;
  return vec2(lane_m, lane_n);
}

// Vector `i` of a tile whose rows lie along K: row i / VECTORS_K, steps i % VECTORS_K · 4 on.
fn put_a_rows(i: u32, value: vec4<f32>) {
  let m = i / VECTORS_K;
  let vector = m / 4u;
  let lane = vector % LEFT_LANES;
  tile_a[vector / LEFT_LANES][0u * VECTORS_K + i % VECTORS_K][lane][m % 4u] = value.x;
  tile_a[vector / LEFT_LANES][1u * VECTORS_K + i % VECTORS_K][lane][m % 4u] = value.y;
  tile_a[vector / LEFT_LANES][2u * VECTORS_K + i % VECTORS_K][lane][m % 4u] = value.z;
  tile_a[vector / LEFT_LANES][3u * VECTORS_K + i % VECTORS_K][lane][m % 4u] = value.w;
}

fn put_b_rows(i: u32, value: vec4<f32>) {
  let n = i / VECTORS_K;
  let vector = n / 4u;
  let lane = vector % RIGHT_LANES;
  tile_b[vector / RIGHT_LANES][0u * VECTORS_K + i % VECTORS_K][lane][n % 4u] = value.x;
  tile_b[vector / RIGHT_LANES][1u * VECTORS_K + i % VECTORS_K][lane][n % 4u] = value.y;
  tile_b[vector / RIGHT_LANES][2u * VECTORS_K + i % VECTORS_K][lane][n % 4u] = value.z;
  tile_b[vector / RIGHT_LANES][3u * VECTORS_K + i % VECTORS_K][lane][n % 4u] = value.w;
}

// Vector `i` of a tile that lies across K: step i / (BM / 4) of it.
fn put_a_columns(i: u32, value: vec4<f32>) {
  let k = i / (BM / 4u);
  let vector = i % (BM / 4u);
  tile_a[vector / LEFT_LANES][k % 4u * VECTORS_K + k / 4u][vector % LEFT_LANES] = value;
}

fn put_b_columns(i: u32, value: vec4<f32>) {
  let k = i / (BN / 4u);
  let vector = i % (BN / 4u);
  tile_b[vector / RIGHT_LANES][k % 4u * VECTORS_K + k / 4u][vector % RIGHT_LANES] = value;
}

// sums += the product of both tiles.
fn multiply(sums: ptr<function, Sums>, lane_m: u32, lane_n: u32) {
  #unroll for (var k = 0u; k < BK; k++) {
    let right = array(tile_b[0][k][lane_n], tile_b[1][k][lane_n]);
    #unroll for (var i = 0u; i < SIDE; i++) {
      let left = tile_a[i][k][lane_m];
      #unroll for (var j = 0u; j < SIDE; j++) {
        (*sums)[i * 4u][j] = fma(vec4(left.x), right[j], (*sums)[i * 4u][j]);
        (*sums)[i * 4u + 1u][j] = fma(vec4(left.y), right[j], (*sums)[i * 4u + 1u][j]);
        (*sums)[i * 4u + 2u][j] = fma(vec4(left.z), right[j], (*sums)[i * 4u + 2u][j]);
        (*sums)[i * 4u + 3u][j] = fma(vec4(left.w), right[j], (*sums)[i * 4u + 3u][j]);
      }
    }
  }
}

// Where four keys of a row from `key` on lie among the probabilities, and among the score gradients: f32
// [heads from FIRST_HEAD on, TILES, 128, 128]. Each strip of 128 queries has the tiles of 128 keys from the first one that its first query
// sees to its own. `documents` has, from FIRST_TILE on, of each strip the tiles before it less its first one.
fn weight_at(head: u32, row: u32, key: u32) -> u32 {
  let tile = (head - FIRST_HEAD) * TILES + documents[FIRST_TILE + row / STRIP] + key / STRIP;
  return (tile * STRIP + row % STRIP) * (STRIP / 4u) + key % STRIP / 4u;
}

// The row of the batch that result `i` of an invocation is of.
fn row_of(m0: u32, i: u32, lane_m: u32) -> u32 {
  return m0 + (i / 4u * LEFT_LANES + lane_m) * 4u + i % 4u;
}
