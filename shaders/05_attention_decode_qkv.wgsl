// attention_decode_qkv: the newest row of a text from the residual stream to what ranges of keys leave. The row's
// RMSNorm, its query, key and value heads, rotated, and attention of the queries to the keys before it: the product
// behind this one merges the ranges and the newest key (lib/matvec/team_input.wgsl). Each workgroup of a query head
// multiplies that head's part of the matrix for itself, so that none waits for another.
//
//   1 b or packed  read        f32 [(HEADS + 2 · KV_HEADS) · HEAD_DIM, K]; or packed (lib/weights.wgsl)
//   2 norm_weight  read        f32 [K]
//   6 partials     write       lib/attention/decode_partial.wgsl
//   7 step         uniform     step.position positions are in the cache; this kernel appends the newest one
//   8 bias, where the products have one: lib/matvec/pair_bias.wgsl
//
// A team has ROW_LANES neighbours of one subgroup, 2 to the power of ROW_STEPS. It multiplies both rows of PAIRS
// pairs, half a head apart, and adds up by shuffles. All loads of a turn, UNROLLED units of each row, are in flight
// together, and with them the first keys and values.
// Grid: x over the row's query, key and value heads, y over ranges. Key and value heads have work in range 0 alone.
// Workgroup memory: 4 · HEAD_DIM bytes, and what lib/attention/decode_turns.wgsl takes.
#import lib/attention/decode_seen
#import lib/attention/decode_score
#import lib/attention/decode_partial
#import lib/attention/decode_turns

#operand a: array<vec4<f32>>       // read        f32 [K]
#operand angles: array<vec4<f32>>  // read        f32 [HEAD_DIM]          (cos, sin) by pair, at the row's position
#operand cache: array<vec4<f32>>   // read_write  f32 [rows, 2 · KV_HEADS · HEAD_DIM]   the row of step.position overwritten
#operand query: array<vec4<f32>>   // write       f32 [HEADS · HEAD_DIM]  the rotated query heads

const ROWS_APART: u32 = WORKGROUP / ROW_LANES;
const UNITS_PER_ROW: u32 = K / (4u * QUADS);

// The head that the workgroup has multiplied.
var<workgroup> numbers: array<f32, HEAD_DIM>;

fn head_vector(v: u32) -> vec4<f32> {
  let i = 4u * v;
  return vec4(numbers[i], numbers[i + 1u], numbers[i + 2u], numbers[i + 3u]);
}

fn scaled_query(v: u32) -> vec4<f32> {
  return head_vector(v) * SCORE_SCALE;
}

fn key_vector(row: u32, kv_head: u32, v: u32) -> vec4<f32> {
  return #cache[row * CACHE_VECTORS + kv_head * VECTORS + v];
}

fn value_vector(row: u32, kv_head: u32, v: u32) -> vec4<f32> {
  return #cache[row * CACHE_VECTORS + (KV_HEADS + kv_head) * VECTORS + v];
}

fn key_scale(row: u32, kv_head: u32) -> f32 {
  return 1.0;
}

fn value_scale(row: u32, kv_head: u32) -> f32 {
  return 1.0;
}

fn row_sum(x: f32) -> f32 {
  var sum = x;
  #unroll for (var s = 0u; s < ROW_STEPS; s++) {
    sum += subgroupShuffleXor(sum, 1u << s);
  }
  return sum;
}

// Leaves a head in workgroup memory. Of each team, one invocation for each pair turns it.
fn multiply(head: u32) {
  let team = subgroup_index * (WORKGROUP / subgroup_count / ROW_LANES) + subgroup_lane / ROW_LANES;
  let part = subgroup_lane % ROW_LANES;
  let first = head * HEAD_DIM + team;
  let own = team + min(part, PAIRS - 1u) * ROWS_APART;
  let angle = #angles[own / 2u];
  let rotation = select(angle.xy, angle.zw, own % 2u == 1u);
  let added = pair_bias(head * HEAD_DIM + own);
  var sums: array<f32, ROWS>;
  var squares = 0.0;
  #unroll for (var t = 0u; t < PASSES; t++) {
    let turn = t * UNROLLED;
    var words: array<array<Words, ROWS>, UNROLLED>;
    var scales: array<array<f32, ROWS>, UNROLLED>;
    #unroll for (var u = 0u; u < UNROLLED; u++) {
      #unroll for (var r = 0u; r < ROWS; r++) {
        let i = (first + r * ROWS_APART) * UNITS_PER_ROW + min((turn + u) * ROW_LANES + part, UNITS_PER_ROW - 1u);
        words[u][r] = fetch_packed(i);
        scales[u][r] = scale_of(i);
      }
    }
    #unroll for (var u = 0u; u < UNROLLED; u++) {
      let unit = (turn + u) * ROW_LANES + part;
      let inside = unit < UNITS_PER_ROW;
      var factors: array<vec4<f32>, QUADS>;
      #unroll for (var q = 0u; q < QUADS; q++) {
        let v = min(unit, UNITS_PER_ROW - 1u) * QUADS + q;
        let x = select(vec4(0.0), #a[v], inside);
        factors[q] = x * fetch_norm(v);
        squares += dot(x, x);
      }
      #unroll for (var r = 0u; r < ROWS; r++) {
        var sum = 0.0;
        #unroll for (var q = 0u; q < QUADS; q++) {
          sum += dot(factors[q], quad_of(words[u][r], q));
        }
        sums[r] += scales[u][r] * sum;
      }
    }
  }
  let scale = inverseSqrt(row_sum(squares) / f32(K) + EPSILON);
  #unroll for (var r = 0u; r < ROWS; r++) {
    sums[r] = row_sum(sums[r]);
  }
  #unroll for (var p = 0u; p < PAIRS; p++) {
    if part == p {
      var pair = vec2(sums[p], sums[p + PAIRS]) * scale + added;
      if head < HEADS + KV_HEADS {
        pair = vec2(pair.x * rotation.x - pair.y * rotation.y, pair.y * rotation.x + pair.x * rotation.y);
      }
      numbers[own] = pair.x;
      numbers[own + HALF] = pair.y;
    }
  }
}

fn run(lane: u32, workgroup: vec3<u32>, workgroups: vec3<u32>) {
  let head = workgroup.x;
  let split = workgroup.y;
  let asks = head < HEADS;
  let seen = seen_keys(0u);
  let range = decode_keys(split, vec2(seen.x, seen.y - 1u));
  if split > 0u && (!asks || range.x >= range.y) {
    return;
  }
  let kv_head = head / MEMBERS;
  let place = lane_place(lane);
  var turn: Turn;
  if asks && range.x < range.y {
    turn = load_turn(range.x + place.x, range.y - 1u, kv_head, place.y);
  }
  multiply(head);
  workgroupBarrier();
  if split == 0u {
    for (var v = lane; v < VECTORS; v += WORKGROUP) {
      if asks {
        #query[head * VECTORS + v] = head_vector(v);
      } else {
        #cache[key_row(step.position) * CACHE_VECTORS + (head - HEADS) * VECTORS + v] = head_vector(v);
      }
    }
  }
  if asks {
    attend(lane, place, kv_head, head % MEMBERS, split, range, turn);
  }
}
