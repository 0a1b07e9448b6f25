// matvec_forward: 03_matvec.wgsl with the same bindings, where a team of LANES neighbours of one subgroup has ROWS
// results by itself, so that sums meet without a barrier. LANES is at most the narrowest subgroup, and both are
// powers of two, so that no team has invocations of two subgroups.
//
//   0 a or partials  read   lib/matvec/team_input.wgsl says what is multiplied
//   1 b      read   f32 [N, K]; or packed (lib/weights.wgsl)
//
// A row of the matrix has TEAM_UNITS units of QUADS vectors, each in Words. The invocations of a team read them in
// turns of UNROLLED. The first turn's are on their way before anything else is waited for: `begin` may end with a
// barrier.
// Grid: ROWS · WORKGROUP / LANES results per workgroup.
#import lib/flat
#import lib/weights
#import lib/matvec/team_input
#import lib/matvec/result

#operand c: array<f32>  // write  f32, as lib/matvec/result.wgsl says

var<private> subgroup_index: u32;
var<private> subgroup_count: u32;
var<private> subgroup_lane: u32;

const TEAM_UNITS: u32 = K / (4u * QUADS);

// What an invocation has of a turn, for each of its rows.
struct Held {
  words: array<array<Words, ROWS>, UNROLLED>,
  scales: array<array<f32, ROWS>, UNROLLED>,
}

// Places past a row's end give its last unit, and results past the last one repeat it.
fn unit(turn: u32, part: u32) -> u32 {
  return min(turn * LANES + part, TEAM_UNITS - 1u);
}

fn hold(first: u32, turn: u32, part: u32) -> Held {
  var held: Held;
  #unroll for (var u = 0u; u < UNROLLED; u++) {
    #unroll for (var r = 0u; r < ROWS; r++) {
      let i = matrix_row(0u, min(first + r, N - 1u)) * TEAM_UNITS + unit(turn + u, part);
      held.words[u][r] = fetch_packed(i);
      held.scales[u][r] = scale_of(i);
    }
  }
  return held;
}

fn team_sum(x: f32) -> f32 {
  var sum = x;
  for (var distance = 1u; distance < LANES; distance *= 2u) {
    sum += subgroupShuffleXor(sum, distance);
  }
  return sum;
}

fn run(lane: u32, workgroup: vec3<u32>, workgroups: vec3<u32>) {
  let teams = WORKGROUP / subgroup_count / LANES;
  let team = subgroup_index * teams + subgroup_lane / LANES;
  let part = subgroup_lane % LANES;
  let first = (flat_workgroup(workgroup, workgroups) * (WORKGROUP / LANES) + team) * ROWS;
  // Each of the first lanes stores one result.
  let loaded = before(0u, min(first + min(part, ROWS - 1u), N - 1u));
  var held = hold(first, 0u, part);
  begin(lane);
  var sums: array<f32, ROWS>;
  var squares = 0.0;
  for (var turn = 0u; turn < TURNS; turn += UNROLLED) {
    #unroll for (var u = 0u; u < UNROLLED; u++) {
      let inside = (turn + u) * LANES + part < TEAM_UNITS;
      var factors: array<vec4<f32>, QUADS>;
      #unroll for (var q = 0u; q < QUADS; q++) {
        let i = unit(turn + u, part) * QUADS + q;
        factors[q] = select(vec4(0.0), factor(i), inside);
        squares += select(0.0, square(i), inside);
      }
      #unroll for (var r = 0u; r < ROWS; r++) {
        var sum = 0.0;
        #unroll for (var q = 0u; q < QUADS; q++) {
          sum += dot(factors[q], quad_of(held.words[u][r], q));
        }
        sums[r] += held.scales[u][r] * sum;
      }
    }
    if turn + UNROLLED < TURNS {
      held = hold(first, turn + UNROLLED, part);
    }
  }
#if NORMED
  squares = team_sum(squares);
#endif
  #unroll for (var r = 0u; r < ROWS; r++) {
    sums[r] = team_sum(sums[r]);
  }
  #unroll for (var r = 0u; r < ROWS; r++) {
    if part == r && first + r < N {
      store(0u, first + r, vec2(norm_scale(squares) * sums[r], 0.0), loaded);
    }
  }
}
