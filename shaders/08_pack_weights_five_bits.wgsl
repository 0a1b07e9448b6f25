// pack_weights_forward: a matrix of f32 into one in five bits, as lib/five_bits.wgsl has them.
//
// The grid of 32 neighbours reaches from the least to the largest, zero among them. One with a number that is not finite gets
// NaN as its width.
// Grid: one invocation per pair of groups.
#import lib/flat
#import lib/finite
#import lib/five_bits

#binding matrix: array<vec4<f32>>  // read   f32 [GROUPS · 64]           rows one after the other, each of whole pairs
#binding packed: array<u32>        // write  words [GROUPS · 8], then [GROUPS · 2] of fifth bits, then the groups' grids

// Vectors of 32 neighbours.
const VECTORS: u32 = 8u;
// The grid whose width is NaN.
const NO_GRID: u32 = 0xffc0u;

// The ten bits of a width at their place in a grid; 0 where it is too small.
fn width_bits(width: f32) -> u32 {
  let bits = bitcast<u32>(width);
  let upper = (bits + 0x1ffffu + ((bits >> 18u) & 1u)) >> 18u;
  return select(min(upper - 3584u, 991u) << 6u, 0u, upper < 3616u);
}

// The grid of the group that begins at vector `first`.
fn grid_around(first: u32) -> u32 {
  var least = vec4(0.0);
  var most = vec4(0.0);
  var finite = true;
  for (var v = first; v < first + VECTORS; v++) {
    let x = matrix[v];
    least = min(least, x);
    most = max(most, x);
    finite = finite && is_finite(x.x) && is_finite(x.y) && is_finite(x.z) && is_finite(x.w);
  }
  let lowest = min(min(least.x, least.y), min(least.z, least.w));
  let highest = max(max(most.x, most.y), max(most.z, most.w));
  let width = width_bits((highest - lowest) / 31.0 * 32.0);
  let zero = u32(clamp(round(-lowest * (32.0 / width_of(max(width, 2048u), 0u)) * 2.0), 0.0, 63.0));
  return select(NO_GRID, select(width | zero, 0u, width == 0u), finite);
}

// The codes of a vector by a grid.
fn codes_of(x: vec4<f32>, grid: u32) -> vec4<u32> {
  let steps = 32.0 / width_of(grid, 0u);
  let zero = f32(grid & 63u) / 2.0;
  return vec4<u32>(clamp(round(x * steps + zero), vec4(0.0), vec4(31.0)));
}

fn bytes_of(x: vec4<u32>) -> u32 {
  return x.x | (x.y << 8u) | (x.z << 16u) | (x.w << 24u);
}

// Writes the codes of 32 neighbours, group i of all.
fn pack(i: u32, grid: u32) {
  let numbers = grid > 0u && grid < NO_GRID;
  var fifths = 0u;
  for (var four = 0u; four < VECTORS; four += 2u) {
    var low = 0u;
    if numbers {
      let a = codes_of(matrix[i * VECTORS + four], grid);
      let b = codes_of(matrix[i * VECTORS + four + 1u], grid);
      low = bytes_of(a & vec4(15u)) | (bytes_of(b & vec4(15u)) << 4u);
      fifths |= (bytes_of(a >> vec4(4u)) << four) | (bytes_of(b >> vec4(4u)) << (four + 1u));
    }
    packed[i * 4u + four / 2u] = low;
  }
  packed[GROUPS * 8u + i] = fifths;
}

fn run(lane: u32, workgroup: vec3<u32>, workgroups: vec3<u32>) {
  let pair = flat_id(lane, workgroup, workgroups);
  if pair >= GROUPS {
    return;
  }
  var grids = 0u;
  for (var half = 0u; half < 2u; half++) {
    let i = 2u * pair + half;
    let grid = grid_around(i * VECTORS);
    pack(i, grid);
    grids |= grid << (16u * half);
  }
  packed[GROUPS * 10u + pair] = grids;
}
