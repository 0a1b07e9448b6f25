// A workgroup's range of keys, and GROUP query heads of one key-value head, in turns: what
// 05_attention_decode.wgsl and 05_attention_decode_qkv.wgsl share. LANES neighbours read neighbouring vectors of a
// row, OWN each; a slot of LANES invocations takes TURN_KEYS keys a turn, SLOTS keys apart, and keeps a softmax of its
// own. At the end the slots of TEAM neighbours meet without workgroup memory, then the TEAMS in it. `scaled_query` gives
// vectors of the queries in base 2: the scale and log2(e) are folded in. Workgroup memory:
// 16 · VECTORS · TEAMS + 8 · TEAMS · GROUP bytes.
const SLOTS: u32 = WORKGROUP / LANES;
// LANES is 2 to the power of LANE_STEPS, TEAM that of LANE_STEPS + TEAM_STEPS.

alias Scores = array<array<f32, GROUP>, TURN_KEYS>;

var<workgroup> team_states: array<vec2<f32>, TEAMS * GROUP>;
var<workgroup> team_sums: array<vec4<f32>, TEAMS * VECTORS>;

#if SUBGROUPS
// Sums by subgroup shuffles, with no barrier. TEAM is at most the narrowest subgroup, so that neither a slot nor a team
// crosses a subgroup. Subgroup ids come from the builtin, never from dividing the invocation index.
var<private> subgroup_index: u32;
var<private> subgroup_count: u32;
var<private> subgroup_lane: u32;
#else
// Sums through workgroup memory: any adapter. A slot is a team.
var<workgroup> lane_parts: array<f32, WORKGROUP * TURN_KEYS * GROUP>;
var<workgroup> lane_sums: array<f32, SLOTS * TURN_KEYS * GROUP>;
#endif

// Place of an invocation: the slot that takes a key a turn, its part of the slot's work.
fn lane_place(lane: u32) -> vec2<u32> {
#if SUBGROUPS
  let slots = WORKGROUP / subgroup_count / LANES;
  return vec2(subgroup_index * slots + subgroup_lane / LANES, subgroup_lane % LANES);
#else
  return vec2(lane / LANES, lane % LANES);
#endif
}

// Over the LANES invocations that share a key, which get the same sums. Every invocation must call, in uniform control
// flow.
fn sum_lanes(lane: u32, parts: Scores) -> Scores {
  var sums = parts;
#if SUBGROUPS
  #unroll for (var u = 0u; u < TURN_KEYS; u++) {
    #unroll for (var g = 0u; g < GROUP; g++) {
      #unroll for (var s = 0u; s < LANE_STEPS; s++) {
        sums[u][g] += subgroupShuffleXor(sums[u][g], LANES >> (s + 1u));
      }
    }
  }
#else
  #unroll for (var u = 0u; u < TURN_KEYS; u++) {
    #unroll for (var g = 0u; g < GROUP; g++) {
      lane_parts[(u * GROUP + g) * WORKGROUP + lane] = sums[u][g];
    }
  }
  workgroupBarrier();
  for (var i = lane; i < SLOTS * TURN_KEYS * GROUP; i += WORKGROUP) {
    var sum = lane_parts[i * LANES];
    for (var j = 1u; j < LANES; j++) {
      sum += lane_parts[i * LANES + j];
    }
    lane_sums[i] = sum;
  }
  workgroupBarrier();
  #unroll for (var u = 0u; u < TURN_KEYS; u++) {
    #unroll for (var g = 0u; g < GROUP; g++) {
      sums[u][g] = lane_sums[(u * GROUP + g) * SLOTS + lane / LANES];
    }
  }
#endif
  return sums;
}

// Over the slots of TEAM neighbours.
fn team_max(x: f32) -> f32 {
  var most = x;
#if SUBGROUPS
  #unroll for (var s = 0u; s < TEAM_STEPS; s++) {
    most = max(most, subgroupShuffleXor(most, LANES << s));
  }
#endif
  return most;
}

fn team_sum(x: vec4<f32>) -> vec4<f32> {
  var sum = x;
#if SUBGROUPS
  #unroll for (var s = 0u; s < TEAM_STEPS; s++) {
    sum += subgroupShuffleXor(sum, LANES << s);
  }
#endif
  return sum;
}

// What a slot reads of a turn's keys.
struct Turn {
  keys: array<array<vec4<f32>, OWN>, TURN_KEYS>,
  values: array<array<vec4<f32>, OWN>, TURN_KEYS>,
  key_scales: array<f32, TURN_KEYS>,
  value_scales: array<f32, TURN_KEYS>,
}

// Rows behind the last key are read as the last key, for nothing: what lies there may be NaN.
fn load_turn(first: u32, last: u32, kv_head: u32, part: u32) -> Turn {
  var turn: Turn;
  #unroll for (var u = 0u; u < TURN_KEYS; u++) {
    let row = key_row(min(first + u * SLOTS, last));
    #unroll for (var i = 0u; i < OWN; i++) {
      turn.keys[u][i] = key_vector(row, kv_head, i * LANES + part);
    }
    #unroll for (var i = 0u; i < OWN; i++) {
      turn.values[u][i] = value_vector(row, kv_head, i * LANES + part);
    }
    turn.key_scales[u] = key_scale(row, kv_head);
    turn.value_scales[u] = value_scale(row, kv_head);
  }
  return turn;
}

// `begun` are the first turn's keys and values, for query heads from `first` on.
fn attend(lane: u32, place: vec2<u32>, kv_head: u32, first: u32, split: u32, range: vec2<u32>, begun: Turn) {
  let slot = place.x;
  let part = place.y;
  var turn = begun;
  var largest: array<f32, GROUP>;
  var totals: array<f32, GROUP>;
  var sums: array<array<vec4<f32>, OWN>, GROUP>;
  #unroll for (var g = 0u; g < GROUP; g++) {
    largest[g] = MASKED;
    totals[g] = 0.0;
    #unroll for (var i = 0u; i < OWN; i++) {
      sums[g][i] = vec4(0.0);
    }
  }
  for (var k0 = range.x; k0 < range.y; k0 += SLOTS * TURN_KEYS) {
    var scores: Scores;
    #unroll for (var u = 0u; u < TURN_KEYS; u++) {
      #unroll for (var g = 0u; g < GROUP; g++) {
        scores[u][g] = 0.0;
      }
    }
    #unroll for (var i = 0u; i < OWN; i++) {
      #unroll for (var g = 0u; g < GROUP; g++) {
        let q = scaled_query(g * VECTORS + i * LANES + part);
        #unroll for (var u = 0u; u < TURN_KEYS; u++) {
          scores[u][g] += dot(q, turn.keys[u][i]);
        }
      }
    }
    scores = sum_lanes(lane, scores);
    #unroll for (var g = 0u; g < GROUP; g++) {
      var next = largest[g];
      #unroll for (var u = 0u; u < TURN_KEYS; u++) {
        let visible = k0 + u * SLOTS + slot < range.y;
        scores[u][g] = select(MASKED, decode_score(scores[u][g] * turn.key_scales[u]), visible);
        next = max(next, scores[u][g]);
      }
      let correction = exp2(largest[g] - next);
      largest[g] = next;
      totals[g] *= correction;
      #unroll for (var i = 0u; i < OWN; i++) {
        sums[g][i] *= correction;
      }
      #unroll for (var u = 0u; u < TURN_KEYS; u++) {
        let visible = k0 + u * SLOTS + slot < range.y;
        let weight = select(0.0, exp2(scores[u][g] - next), visible);
        totals[g] += weight;
        #unroll for (var i = 0u; i < OWN; i++) {
          sums[g][i] += weight * turn.value_scales[u] * turn.values[u][i];
        }
      }
    }
    let next = k0 + SLOTS * TURN_KEYS;
    if next < range.y {
      turn = load_turn(next + slot, range.y - 1u, kv_head, part);
    }
  }

  // The slots meet, one query head after the other. A slot that saw no key weighs nothing.
  #unroll for (var g = 0u; g < GROUP; g++) {
    let most = team_max(largest[g]);
    let factor = exp2(largest[g] - most);
    largest[g] = most;
    totals[g] = team_sum(vec4(factor * totals[g])).x;
    #unroll for (var i = 0u; i < OWN; i++) {
      sums[g][i] = team_sum(factor * sums[g][i]);
    }
  }
  let team = slot / (TEAM / LANES);
  let leads = slot % (TEAM / LANES) == 0u;
  if leads && part == 0u {
    #unroll for (var g = 0u; g < GROUP; g++) {
      team_states[g * TEAMS + team] = vec2(largest[g], totals[g]);
    }
  }
  workgroupBarrier();
  #unroll for (var g = 0u; g < GROUP; g++) {
    var best = MASKED;
    #unroll for (var t = 0u; t < TEAMS; t++) {
      best = max(best, team_states[g * TEAMS + t].x);
    }
    if leads {
      let factor = exp2(largest[g] - best);
      #unroll for (var i = 0u; i < OWN; i++) {
        team_sums[team * VECTORS + i * LANES + part] = factor * sums[g][i];
      }
    }
    workgroupBarrier();
    let head = first + g;
    if head < MEMBERS && lane < VECTORS {
      var total = 0.0;
      #unroll for (var t = 0u; t < TEAMS; t++) {
        let state = team_states[g * TEAMS + t];
        total += state.y * exp2(state.x - best);
      }
      for (var v = lane; v < VECTORS; v += WORKGROUP) {
        var sum = team_sums[v];
        #unroll for (var t = 1u; t < TEAMS; t++) {
          sum += team_sums[t * VECTORS + v];
        }
        store_result(kv_head * MEMBERS + head, split, v, sum, best, total);
      }
    }
    workgroupBarrier();
  }
}
