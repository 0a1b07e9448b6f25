// uses: math, attention/decode_score, finite or none, element/quad_f32 or element/quad_f16 or none, step or attention/geometry, attention/decode_seen_cache or attention/decode_seen_several or attention/decode_seen_tensors, cache/key_row, attention/decode_cache or attention/decode_several or attention/decode_tensors, attention/decode_ranges or none, attention/decode_whole or attention/decode_partial, attention/lanes_subgroup or attention/lanes_tree, attention/decode_output_row or attention/decode_output_tensors or none, cache/f32 or cache/f16 or cache/int8 or none
// attention_decode, attention_decode_split: one query row against the key-value cache, for a range
// of keys and up to GROUP query heads of one key-value head in a workgroup (Dao et al.,
// "Flash-Decoding for long-context inference", 2023).
//
// Over a cache (lib/attention/decode_cache.wgsl, lib/attention/decode_seen_cache.wgsl, lib/attention/decode_output_row.wgsl):
//
//   0 query   read   f32 [HEADS · HEAD_DIM …]      the row's query heads come first
//   1 cache   read   [capacity, row]               key heads, then value heads; lib/cache/
//   2 output  write  f32 [HEADS · HEAD_DIM]        overwritten
//   3 step    uniform                              the cache holds step.position + 1 positions, of
//                                                  which the query sees the last WINDOW
//
// Over a cache that holds the texts of several rows (lib/attention/decode_seen_several.wgsl and so on), documents
// comes behind it, read, u32 [rows], and query and output have a row for each; step.position is not looked at.
//
// Over tensors, elements f32 or f16 (lib/attention/decode_tensors.wgsl and so on; lib/element/quad_*.wgsl):
//
//   0 query   read   [batch, HEADS, 1, HEAD_DIM]        strides of all tensors in the geometry
//   1 keys    read   [batch, KV_HEADS, rows, HEAD_DIM]
//   2 values  read   [batch, KV_HEADS, rows, HEAD_DIM]
//   3 mask    read   u32                                the interval of keys of each batch item
//   4 output  write  [batch, HEADS, 1, HEAD_DIM]        overwritten, and so is
//   5 lse     write  f32 [batch, HEADS]                 natural log of Σ exp(score)
//   6 geometry uniform                                 lib/attention/geometry.wgsl
//
// attention_decode_split writes no output and no lse, but in their place
//     partials  write  f32 [batch · HEADS, SPLITS, HEAD_DIM + 4]  active ranges: lib/attention/decode_partial.wgsl
//
// Heads are counted over the batch: a query head of item b is b · HEADS + h.
// Each key and value is read once for all query heads of the workgroup. LANES neighbours read
// neighbouring vectors of a row, OWN each; a slot of LANES invocations takes TURN_KEYS keys a turn, SLOTS keys
// apart, and keeps a softmax of its own. At the end the slots of TEAM neighbours meet without workgroup memory, then
// the teams in it. Scores are kept in base 2: the scale and log2(e) are folded into the query.
// Grid: x over batch items, key-value heads and blocks of their query heads, y over ranges. Of several
// ranges those without keys return at once; a single one without keys gives zeros. Workgroup memory:
// 16 · VECTORS · (GROUP + TEAMS) + 8 · TEAMS · GROUP bytes, and what lib/attention/lanes_tree.wgsl takes.

// The MEMBERS query heads of a key-value head come in blocks of GROUP.
const BLOCKS: u32 = (MEMBERS + GROUP - 1u) / GROUP;
const SLOTS: u32 = WORKGROUP / LANES;
const TEAMS: u32 = WORKGROUP / TEAM;

alias Scores = array<array<f32, GROUP>, TURN_KEYS>;

var<workgroup> queries: array<vec4<f32>, GROUP * VECTORS>;
var<workgroup> team_states: array<vec2<f32>, TEAMS * GROUP>;
var<workgroup> team_sums: array<vec4<f32>, TEAMS * VECTORS>;

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
  for (var u = 0u; u < TURN_KEYS; u++) {
    let row = key_row(min(first + u * SLOTS, last));
    for (var i = 0u; i < OWN; i++) {
      turn.keys[u][i] = key_vector(row, kv_head, i * LANES + part);
    }
    for (var i = 0u; i < OWN; i++) {
      turn.values[u][i] = value_vector(row, kv_head, i * LANES + part);
    }
    turn.key_scales[u] = key_scale(row, kv_head);
    turn.value_scales[u] = value_scale(row, kv_head);
  }
  return turn;
}

fn run(lane: u32, workgroup: vec3<u32>, workgroups: vec3<u32>) {
  let kv_head = workgroup.x / BLOCKS;
  let first = workgroup.x % BLOCKS * GROUP;
  let split = workgroup.y;
  let range = decode_keys(split, seen_keys(kv_head / KV_HEADS));
  if SPLITS > 1u && range.x >= range.y {
    return;
  }
  let place = lane_place(lane);
  let slot = place.x;
  let part = place.y;
  // Before the queries are waited for.
  var turn: Turn;
  if range.x < range.y {
    turn = load_turn(range.x + slot, range.y - 1u, kv_head, part);
  }
  for (var i = lane; i < GROUP * VECTORS; i += WORKGROUP) {
    let head = kv_head * MEMBERS + min(first + i / VECTORS, MEMBERS - 1u);
    queries[i] = query_vector(head, i % VECTORS) * SCORE_SCALE;
  }
  workgroupBarrier();

  var largest: array<f32, GROUP>;
  var totals: array<f32, GROUP>;
  var sums: array<array<vec4<f32>, OWN>, GROUP>;
  for (var g = 0u; g < GROUP; g++) {
    largest[g] = MASKED;
    totals[g] = 0.0;
    for (var i = 0u; i < OWN; i++) {
      sums[g][i] = vec4(0.0);
    }
  }
  for (var k0 = range.x; k0 < range.y; k0 += SLOTS * TURN_KEYS) {
    var scores: Scores;
    for (var u = 0u; u < TURN_KEYS; u++) {
      for (var g = 0u; g < GROUP; g++) {
        scores[u][g] = 0.0;
      }
    }
    for (var i = 0u; i < OWN; i++) {
      for (var g = 0u; g < GROUP; g++) {
        let q = queries[g * VECTORS + i * LANES + part];
        for (var u = 0u; u < TURN_KEYS; u++) {
          scores[u][g] += dot(q, turn.keys[u][i]);
        }
      }
    }
    scores = sum_lanes(lane, scores);
    for (var g = 0u; g < GROUP; g++) {
      var next = largest[g];
      for (var u = 0u; u < TURN_KEYS; u++) {
        let visible = k0 + u * SLOTS + slot < range.y;
        scores[u][g] = select(MASKED, decode_score(scores[u][g] * turn.key_scales[u]), visible);
        next = max(next, scores[u][g]);
      }
      let correction = exp2(largest[g] - next);
      largest[g] = next;
      totals[g] *= correction;
      for (var i = 0u; i < OWN; i++) {
        sums[g][i] *= correction;
      }
      for (var u = 0u; u < TURN_KEYS; u++) {
        let visible = k0 + u * SLOTS + slot < range.y;
        let weight = select(0.0, exp2(scores[u][g] - next), visible);
        totals[g] += weight;
        for (var i = 0u; i < OWN; i++) {
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
  for (var g = 0u; g < GROUP; g++) {
    let most = team_max(largest[g]);
    let factor = exp2(largest[g] - most);
    largest[g] = most;
    totals[g] = team_sum(vec4(factor * totals[g])).x;
    for (var i = 0u; i < OWN; i++) {
      sums[g][i] = team_sum(factor * sums[g][i]);
    }
  }
  let team = slot / (TEAM / LANES);
  let leads = slot % (TEAM / LANES) == 0u;
  if leads && part == 0u {
    for (var g = 0u; g < GROUP; g++) {
      team_states[g * TEAMS + team] = vec2(largest[g], totals[g]);
    }
  }
  workgroupBarrier();
  for (var g = 0u; g < GROUP; g++) {
    var best = MASKED;
    for (var t = 0u; t < TEAMS; t++) {
      best = max(best, team_states[g * TEAMS + t].x);
    }
    if leads {
      let factor = exp2(largest[g] - best);
      for (var i = 0u; i < OWN; i++) {
        team_sums[team * VECTORS + i * LANES + part] = factor * sums[g][i];
      }
    }
    workgroupBarrier();
    let head = first + g;
    if head < MEMBERS {
      var total = 0.0;
      for (var t = 0u; t < TEAMS; t++) {
        let state = team_states[g * TEAMS + t];
        total += state.y * exp2(state.x - best);
      }
      for (var v = lane; v < VECTORS; v += WORKGROUP) {
        var sum = team_sums[v];
        for (var t = 1u; t < TEAMS; t++) {
          sum += team_sums[t * VECTORS + v];
        }
        store_result(kv_head * MEMBERS + head, split, v, sum, best, total);
      }
    }
    workgroupBarrier();
  }
}
