// attention_forward by matrices that a subgroup holds: operands rounded to f16, sums and softmax in f32. Results are
// those of 05_attention_forward.wgsl.
//
//   6 range      uniform                                       lib/attention/dropout.wgsl
//
// A subgroup has ROWS rows. Matrices leave their scores in workgroup memory, where a pair of neighbours has a row, each a
// SHARE of its keys, and take its weights, rounded to f16, from there. Results stay in matrices, which no invocation can scale
// by rows. So weights are powers of 2 relative to a score that is at most 2^SLACK times smaller than the largest so
// far (a lazy form of the online softmax of Milakov and Gimelshein, arXiv:1805.02867): only where a row leaves that
// range do the workgroup's results go through workgroup memory, to be multiplied there. That is rare behind the
// first tile. f16 holds 2^SLACK with as many digits as 1.
//
// While a tile's scores are multiplied, its values and the next keys are on their way to registers.
//
// With KEY_PARTS > 1 a tile's keys are divided among as many subgroups for each ROWS rows, PART each, which have a softmax
// of their own and meet behind the last tile: fewer tiles, one after the other, where there are few queries.
// Grid: x over query tiles of BQ, y over heads, dealt out by `assigned`.
// Workgroup memory: two bytes for each element of the tiles, four for each score. Behind a line of scores is room for
// the sums of its row's weights. Any other line ends with a pad, which keeps the loads of a matrix in different banks.
#import lib/step
#import lib/attention/mask
#import lib/cache/key_row
#import lib/attention/dropout
#import lib/attention/score
#import lib/attention/assigned
#import lib/attention/qkv_cells
#import lib/matrix

#if F16
#import lib/quad
#endif
#if OUTPUT_F16
alias OutputQuad = vec2<u32>;
#else
alias OutputQuad = vec4<f32>;
#endif

#binding query: array<QkvQuad>      // read     f32 or f16 [tokens, Q_STRIDE]          head h at column h · HEAD_DIM
// keys: f32 or f16 [keys, KV_STRIDE]  heads from KEY_OFFSET, values from VALUE_OFFSET, in rows where lib/cache/key_row.wgsl says
#binding keys: array<QkvQuad>       // read
#binding documents: array<u32>      // read     u32 [tokens]                           first key that each query may see
#binding output: array<OutputQuad>  // write    f32 or f16 [tokens, HEADS · HEAD_DIM]  overwritten
#binding lse: array<f32>            // write    f32 [tokens, HEADS]                    overwritten
#binding step: Step                 // uniform

fn load_query(row: u32, head: u32, v: u32) -> QkvQuad {
  return query[(row * Q_STRIDE + head * HEAD_DIM) / 4u + v];
}

fn load_key(row: u32, kv_head: u32, v: u32) -> QkvQuad {
  return keys[(key_row(row) * KV_STRIDE + KEY_OFFSET + kv_head * HEAD_DIM) / 4u + v];
}

fn load_value(row: u32, kv_head: u32, v: u32) -> QkvQuad {
  return keys[(key_row(row) * KV_STRIDE + VALUE_OFFSET + kv_head * HEAD_DIM) / 4u + v];
}

fn store_output(row: u32, head: u32, v: u32, x: vec4<f32>) {
#if OUTPUT_F16
  output[(row * HEADS + head) * VECTORS + v] = pack_quad(x);
#else
  output[(row * HEADS + head) * VECTORS + v] = x;
#endif
}

fn store_lse(row: u32, head: u32, x: f32) {
  lse[row * HEADS + head] = x;
}

const ROW_PANELS: u32 = BQ / ROWS;
// Of rows by a part of a tile's keys: a subgroup has one.
const PANELS: u32 = ROW_PANELS * KEY_PARTS;
// Keys of a part.
const PART: u32 = BK / KEY_PARTS;
// Elements of a panel: its last line needs no pad.
const QUERY_CELLS: u32 = (ROWS - 1u) * HEAD_PITCH + HEAD_DIM;
const COLUMN_CELLS: u32 = (PART - 1u) * HEAD_PITCH + HEAD_DIM;
const WEIGHT_CELLS: u32 = (ROWS - 1u) * WEIGHTS_PITCH + PART;

alias Products = array<array<Sums, PART / MATRIX_N>, ROWS / MATRIX_M>;
alias Results = array<array<Sums, HEAD_DIM / MATRIX_N>, ROWS / MATRIX_M>;

var<workgroup> scores: array<array<f32, ROWS * SCORES_PITCH>, PANELS>;

const SHARERS: u32 = 2u;
// A score that is not seen, in SCORE_UNIT.
const LEAST_SCORE: f32 = MASKED / max(SCORE_UNIT_LOG2, 1e-6);
const LEAST_SEEN: f32 = 0.5 * LEAST_SCORE;
// In powers of 2.
const SLACK: f32 = 8.0;

// The first: one more than the first key of the last tile before which results were multiplied. With the others it fills
// 16 bytes: drivers put one array behind the other, and load matrices from multiples of 16 bytes alone.
var<workgroup> rescaled: array<atomic<u32>, 4>;

alias Column = array<QkvQuad, COLUMN_LOADS>;

// Which of 32 keys a query keeps under dropout, a bit for each: `key0` is a multiple of 32.
fn kept_bits(head: u32, row: u32, key0: u32) -> u32 {
  if !DROPPED {
    return 0xffffffffu;
  }
  var bits = 0u;
  for (var i = 0u; i < 8u; i++) {
    let words = words_of(head, row, key0 + i);
    for (var j = 0u; j < 32u; j += 8u) {
      bits |= select(0u, 1u << (i + j), kept_of(words, key0 + i + j) > 0.0);
    }
  }
  return bits;
}

// What is kept is multiplied by this; without dropout by 1.
fn kept_scale() -> f32 {
  return kept_of(vec4(0xffffffffu), 0u);
}

// Loads come before stores, so that an invocation has all of them in flight at once.
fn stage_queries(lane: u32, first_row: u32, last_row: u32, head: u32) {
  var loaded = array<QkvQuad, QUERY_LOADS>();
  #unroll for (var n = 0u; n < QUERY_LOADS; n++) {
    let i = lane + n * WORKGROUP;
    loaded[n] = load_query(min(first_row + i / VECTORS, last_row), head, i % VECTORS);
  }
  #unroll for (var n = 0u; n < QUERY_LOADS; n++) {
    let i = lane + n * WORKGROUP;
    put_queries(i / VECTORS, i % VECTORS, qkv_cells(loaded[n]));
  }
}

fn fetch_keys(lane: u32, key0: u32, key_end: u32, kv_head: u32) -> Column {
  var loaded = Column();
  #unroll for (var n = 0u; n < COLUMN_LOADS; n++) {
    let i = lane + n * WORKGROUP;
    loaded[n] = load_key(min(key0 + i / VECTORS, key_end - 1u), kv_head, i % VECTORS);
  }
  return loaded;
}

fn fetch_values(lane: u32, key0: u32, key_end: u32, kv_head: u32) -> Column {
  var loaded = Column();
  #unroll for (var n = 0u; n < COLUMN_LOADS; n++) {
    let i = lane + n * WORKGROUP;
    loaded[n] = load_value(min(key0 + i / VECTORS, key_end - 1u), kv_head, i % VECTORS);
  }
  return loaded;
}

// The sum of a row's weights.
fn row_total(panel: u32, line: u32) -> f32 {
  return scores[panel][line + PART] + scores[panel][line + PART + 1u];
}

#if KEYS_APART
// By what the results of each part of a row are multiplied, and the sum of its weights is divided; and the reference score
// of the whole row. `line` of panel `panel` has the row's first part.
struct Meeting {
  factors: array<f32, KEY_PARTS>,
  total: f32,
  reference: f32,
}

fn meet(panel: u32, line: u32) -> Meeting {
  var all: Meeting;
  all.reference = LEAST_SCORE;
  #unroll for (var p = 0u; p < KEY_PARTS; p++) {
    all.reference = max(all.reference, scores[panel + p * ROW_PANELS][line + PART + 2u]);
  }
  #unroll for (var p = 0u; p < KEY_PARTS; p++) {
    let own = scores[panel + p * ROW_PANELS][line + PART + 2u];
    all.factors[p] = exp2((own - all.reference) * SCORE_UNIT_LOG2);
    all.total += all.factors[p] * row_total(panel + p * ROW_PANELS, line);
  }
  return all;
}
#endif

// Natural log of Σ exp from the reference score and the sum of weights.
fn logsumexp(reference: f32, total: f32) -> f32 {
  return select(MASKED, reference * SCORE_UNIT_LOG2 * LN_2 + log(total), reference > LEAST_SEEN);
}

fn run(lane: u32, workgroup: vec3<u32>, workgroups: vec3<u32>) {
  let turn = assigned(workgroup, workgroups);
  let head = turn.y;
  let kv_head = head / (HEADS / KV_HEADS);
  let first_row = turn.x * BQ;
  if first_row >= query_count() {
    return;
  }
  let last_row = min(first_row + BQ, query_count()) - 1u;
  let own = own_group(lane);
  let place = pair_place(lane);
  let pair = place / SHARERS;
  let side = place % SHARERS;
  let row = min(first_row + pair % BQ, last_row);
  let key_end = end_key(0u, last_row);
  let whole_from = first_key(0u, last_row);
  let whole_end = end_key(0u, first_row);
  let seen = seen_keys(0u, row);
  let group = own % PANELS;
  let panel = pair / ROWS % PANELS;
  let line = pair % ROWS * SCORES_PITCH;
  let first = side * SHARE;
  // The first key of the invocation in a tile.
  let offset = pair / BQ * PART + first;

  var results = Results();
  var reference = LEAST_SCORE;
  var total = 0.0;
  // A ring may hold anything before the first key that a query of the tile sees.
  let first_seen = first_key(0u, first_row);
  let first_tile = select(first_seen / BK * BK, first_seen, RINGED);
  stage_queries(lane, first_row, last_row, head);
  var next_keys = fetch_keys(lane, first_tile, key_end, kv_head);
  #unroll for (var n = 0u; n < COLUMN_LOADS; n++) {
    let i = lane + n * WORKGROUP;
    put_keys(i / VECTORS, i % VECTORS, qkv_cells(next_keys[n]));
  }
  workgroupBarrier();

  for (var k0 = first_tile; k0 < key_end; k0 += BK) {
    let values = fetch_values(lane, k0, key_end, kv_head);
    let last = k0 + BK >= key_end;
    if !last {
      next_keys = fetch_keys(lane, k0 + BK, key_end, kv_head);
    }
    var products = Products();
    multiply_keys(group, &products);
    if own < PANELS {
      store_products(group, &products);
    }
    workgroupBarrier();

    #unroll for (var n = 0u; n < COLUMN_LOADS; n++) {
      let i = lane + n * WORKGROUP;
      put_values(i / VECTORS, i % VECTORS, qkv_cells(values[n]));
      if !last {
        put_keys(i / VECTORS, i % VECTORS, qkv_cells(next_keys[n]));
      }
    }
    var row_scores = array<f32, SHARE>();
    #unroll for (var j = 0u; j < SHARE; j++) {
      row_scores[j] = score_of(scores[panel][line + first + j]);
    }
    if k0 < whole_from || k0 + BK > whole_end {
      #unroll for (var j = 0u; j < SHARE; j++) {
        row_scores[j] = select(LEAST_SCORE, row_scores[j], k0 + offset + j - seen.x < seen.y);
      }
    }
    var largest = vec4(LEAST_SCORE);
    #unroll for (var four = 0u; four < SHARE4; four++) {
      let at = four * 4u;
      largest = max(largest, vec4(row_scores[at], row_scores[at + 1u], row_scores[at + 2u], row_scores[at + 3u]));
    }
    let best = of_pair(panel, line + PART, max(max(largest.x, largest.y), max(largest.z, largest.w)));
    var correction = 1.0;
    if (best - reference) * SCORE_UNIT_LOG2 > SLACK {
      correction = exp2((reference - best) * SCORE_UNIT_LOG2);
      reference = best;
      if total > 0.0 {
        atomicMax(&rescaled[0], k0 + 1u);
      }
      total *= correction;
    }
    // A row that has seen no key yet has weights of 0.
    let base = select(0.0, reference, reference > LEAST_SEEN);
    let block = (k0 + offset) / 32u * 32u;
    let bits = kept_bits(head, row, block) >> (k0 + offset - block);
    var parts = vec4<f32>();
    #unroll for (var four = 0u; four < SHARE4; four++) {
      let at = four * 4u;
      let scored = vec4(row_scores[at], row_scores[at + 1u], row_scores[at + 2u], row_scores[at + 3u]);
      // The reference score itself has a weight of exactly 1.
      var weights = exp2((scored - base) * SCORE_UNIT_LOG2);
      parts += weights;
      if DROPPED {
        weights = select(vec4<f32>(), weights, (vec4(bits >> at) & vec4(1u, 2u, 4u, 8u)) != vec4(0u));
      }
      put_weights(pair, first / 4u + four, cells_of(weights));
    }
    total += parts.x + parts.y + parts.z + parts.w;

    if workgroupUniformLoad(&rescaled[0]) == k0 + 1u {
      #unroll for (var strip = 0u; strip < STRIPS; strip++) {
        if own < PANELS {
          store_results(group, strip, &results);
        }
        workgroupBarrier();
        #unroll for (var j = 0u; j < STRIP; j++) {
          scores[panel][line + side * STRIP + j] *= correction;
        }
        workgroupBarrier();
        load_results(group, strip, &results);
        workgroupBarrier();
      }
    }
    add_values(group, &results);
  }

  scores[panel][line + PART + side] = total;
#if KEYS_APART
  scores[panel][line + PART + 2u + side] = reference;
#endif
  workgroupBarrier();
  if side == 0u && first_row + pair <= last_row && pair < BQ {
#if KEYS_APART
    let all = meet(panel, line);
    store_lse(row, head, logsumexp(all.reference, all.total));
#else
    store_lse(row, head, logsumexp(reference, row_total(panel, line)));
#endif
  }
  #unroll for (var strip = 0u; strip < STRIPS; strip++) {
    if own < PANELS {
      store_results(group, strip, &results);
    }
    workgroupBarrier();
    #unroll for (var n = 0u; n < STRIP_LOADS; n++) {
      let i = lane + n * WORKGROUP;
      let r = i / STRIP4 % BQ;
      if first_row + r <= last_row {
        let owner = r / ROWS;
        let begin = r % ROWS * SCORES_PITCH;
        let at = begin + i % STRIP4 * 4u;
#if KEYS_APART
        let all = meet(owner, begin);
        var x = vec4<f32>();
        #unroll for (var p = 0u; p < KEY_PARTS; p++) {
          let sheet = owner + p * ROW_PANELS;
          x += all.factors[p] * vec4(scores[sheet][at], scores[sheet][at + 1u], scores[sheet][at + 2u], scores[sheet][at + 3u]);
        }
        let factor = kept_scale() / max(all.total, LEAST_TOTAL);
#else
        let x = vec4(scores[owner][at], scores[owner][at + 1u], scores[owner][at + 2u], scores[owner][at + 3u]);
        let factor = kept_scale() / max(row_total(owner, begin), LEAST_TOTAL);
#endif
        store_output(first_row + r, head, strip * STRIP4 + i % STRIP4, x * factor);
      }
    }
    workgroupBarrier();
  }
}
