// low_rank_weights_backward: the gradients of matrices of low rank, those of several modules of an adapter.
//
// Of each module d_A = d_zᵀ · x, and d_B = d_yᵀ · z. Both are sums over tokens of products of a long row (x, d_y) with a
// short one (d_z, z). An invocation has a block of 4 long by 4 short columns, and every SHARED_BY-th token. The parts of a
// sum meet in workgroup memory, where there is more than one.
//
// Grid: a workgroup for LONG_FOURS by SHORT_FOURS blocks: those of each module's A, then of each one's B.
// Workgroup memory: where tokens are shared, 64 bytes an invocation.
#import lib/step
#import lib/write_mode

#binding step: Step            // uniform
#binding gradient: array<f32>  // read_write  f32, each A [RANK, INPUTS] from AT_A on, each B [WIDTHS, RANK] from AT_B on

// x: f32 or f16 [tokens, INPUTS]       read
// d_z, z: f32 [tokens, SHORT] read
// d_y: f32 or f16 [tokens, OUTPUTS]    read
// Of each, elements column … column + 3 of a row; `end` is where the module's columns end. fetch_long_0 and fetch_short_0
// are for the gradient of A, the others for that of B.
#if BY_FOUR
#if X_F16
#binding x: array<vec2<u32>>

fn fetch_long_0(row: u32, column: u32, end: u32) -> vec4<f32> {
  let halves = x[(row * INPUTS + min(column, end - 4u)) / 4u];
  return vec4(unpack2x16float(halves.x), unpack2x16float(halves.y));
}
#else
#binding x: array<vec4<f32>>

fn fetch_long_0(row: u32, column: u32, end: u32) -> vec4<f32> {
  return x[(row * INPUTS + min(column, end - 4u)) / 4u];
}
#endif
#if D_Y_F16
#binding d_y: array<vec2<u32>>

fn fetch_long_1(row: u32, column: u32, end: u32) -> vec4<f32> {
  let halves = d_y[(row * OUTPUTS + min(column, end - 4u)) / 4u];
  return vec4(unpack2x16float(halves.x), unpack2x16float(halves.y));
}
#else
#binding d_y: array<vec4<f32>>

fn fetch_long_1(row: u32, column: u32, end: u32) -> vec4<f32> {
  return d_y[(row * OUTPUTS + min(column, end - 4u)) / 4u];
}
#endif
#binding d_z: array<vec4<f32>>
#binding z: array<vec4<f32>>

fn fetch_short_0(row: u32, column: u32, end: u32) -> vec4<f32> {
  return d_z[(row * SHORT + min(column, end - 4u)) / 4u];
}

fn fetch_short_1(row: u32, column: u32, end: u32) -> vec4<f32> {
  return z[(row * SHORT + min(column, end - 4u)) / 4u];
}
#else
#binding x: array<f32>
#binding d_z: array<f32>
#binding d_y: array<f32>
#binding z: array<f32>

// Places of four elements; those past the end are the last one's.
fn places_of(row: u32, column: u32, end: u32) -> vec4<u32> {
  return row + min(column + vec4(0u, 1u, 2u, 3u), vec4(end - 1u));
}

fn fetch_long_0(row: u32, column: u32, end: u32) -> vec4<f32> {
  let i = places_of(row * INPUTS, column, end);
  return vec4(x[i.x], x[i.y], x[i.z], x[i.w]);
}

fn fetch_long_1(row: u32, column: u32, end: u32) -> vec4<f32> {
  let i = places_of(row * OUTPUTS, column, end);
  return vec4(d_y[i.x], d_y[i.y], d_y[i.z], d_y[i.w]);
}

fn fetch_short_0(row: u32, column: u32, end: u32) -> vec4<f32> {
  let i = places_of(row * SHORT, column, end);
  return vec4(d_z[i.x], d_z[i.y], d_z[i.z], d_z[i.w]);
}

fn fetch_short_1(row: u32, column: u32, end: u32) -> vec4<f32> {
  let i = places_of(row * SHORT, column, end);
  return vec4(z[i.x], z[i.y], z[i.z], z[i.w]);
}
#endif

const WEIGHT_BLOCKS: u32 = LONG_FOURS * SHORT_FOURS;
// Tokens of one round of loads, and the distance to the next round.
const TOKENS_AT_ONCE: u32 = 4u;
const TOKENS_APART: u32 = TOKENS_AT_ONCE * SHARED_BY;

#if SLICED
// Parts of 4×4 results, by long column and invocation.
var<workgroup> token_sums: array<vec4<f32>, 4u * WORKGROUP>;
#endif

// What a workgroup computes gradients of: a module's A, or its B.
struct Side {
  of_b: bool,
  // The first workgroup of it, the first long column and how many there are, the first short column, where it begins.
  first: u32,
  long: u32,
  width: u32,
  short: u32,
  at: u32,
}

fn side_of(group: u32) -> Side {
  var side = Side(false, FIRSTS_A[0], 0u, INPUTS, SHORT_FROM[0], AT_A[0]);
  #unroll for (var m = 1u; m < MODULES; m++) {
    if group >= FIRSTS_A[m] {
      side = Side(false, FIRSTS_A[m], 0u, INPUTS, SHORT_FROM[m], AT_A[m]);
    }
  }
  #unroll for (var m = 0u; m < MODULES; m++) {
    if group >= FIRSTS_B[m] {
      side = Side(true, FIRSTS_B[m], COLUMN[m], WIDTHS[m], SHORT_FROM[m], AT_B[m]);
    }
  }
  return side;
}

// Four gradients: of a long column, and short columns from one on.
fn put_gradients(side: Side, long: u32, short: u32, values: vec4<f32>) {
  if long < side.width {
    for (var e = 0u; e < min(4u, RANK - min(short, RANK)); e++) {
      let i = side.at + select((short + e) * INPUTS + long, long * RANK + short + e, side.of_b);
      if adds(step.accumulate) {
        gradient[i] += values[e];
      } else {
        gradient[i] = values[e];
      }
    }
  }
}

// Adds the products of four elements of a long row with four of a short one.
fn add_outer(long: vec4<f32>, short: vec4<f32>, sums: ptr<function, array<vec4<f32>, 4>>) {
  (*sums)[0] += long.x * short;
  (*sums)[1] += long.y * short;
  (*sums)[2] += long.z * short;
  (*sums)[3] += long.w * short;
}

fn run(lane: u32, workgroup: vec3<u32>, workgroups: vec3<u32>) {
  let side = side_of(workgroup.x);
  let group = workgroup.x - side.first;
  // The group's first columns among those of the module.
  let long0 = group / ACROSS * (4u * LONG_FOURS);
  let short0 = group % ACROSS * (4u * SHORT_FOURS);
  let slice = lane / WEIGHT_BLOCKS;
  let block = lane % WEIGHT_BLOCKS;
  let long = side.long + long0 + block % LONG_FOURS * 4u;
  let long_end = side.long + side.width;
  let short = side.short + short0 + block / LONG_FOURS * 4u;
  let short_end = side.short + RANK;
  var sums = array<vec4<f32>, 4>();
  // A and B are apart: a choice at each load would wait for it.
  #unroll for (var b = 0u; b < 2u; b++) {
    if side.of_b == (b == 1u) {
      var t = slice;
      for (; t + TOKENS_APART - SHARED_BY < step.tokens; t += TOKENS_APART) {
        #unroll for (var s = 0u; s < 4u; s++) {
          let long_#s = fetch_long_#b(t + s * SHARED_BY, long, long_end);
          let short_#s = fetch_short_#b(t + s * SHARED_BY, short, short_end);
        }
        #unroll for (var s = 0u; s < 4u; s++) {
          add_outer(long_#s, short_#s, &sums);
        }
      }
      for (; t < step.tokens; t += SHARED_BY) {
        add_outer(fetch_long_#b(t, long, long_end), fetch_short_#b(t, short, short_end), &sums);
      }
    }
  }
#if SLICED
  #unroll for (var e = 0u; e < 4u; e++) {
    token_sums[e * WORKGROUP + lane] = sums[e];
  }
  workgroupBarrier();
  for (var i = lane; i < 4u * WEIGHT_BLOCKS; i += WORKGROUP) {
    let column = i % (4u * LONG_FOURS);
    let four = i / (4u * LONG_FOURS);
    let place = column % 4u * WORKGROUP + four * LONG_FOURS + column / 4u;
    var total = token_sums[place];
    for (var s = 1u; s < SHARED_BY; s++) {
      total += token_sums[place + s * WEIGHT_BLOCKS];
    }
    put_gradients(side, long0 + column, short0 + four * 4u, total);
  }
#else
  #unroll for (var e = 0u; e < 4u; e++) {
    put_gradients(side, long0 + block % LONG_FOURS * 4u + e, short0 + block / LONG_FOURS * 4u, sums[e]);
  }
#endif
}
