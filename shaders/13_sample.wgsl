// sample_forward: draws the next token and makes it the next input: logits → repetition penalty
// → bias → temperature → top-k → top-p → min-p → one draw, all on the GPU, so that several tokens go in
// one submit.
//
// The log-probability is that of the model: before temperature and filters. Thresholds come from
// bisecting the 32 bits of an order-preserving integer image of the logits, so ties are kept
// together and nothing is sorted. Temperature 0 takes the largest logit, the lowest index on ties.
// Grid: one workgroup; of several rows (lib/sample.wgsl) one for each.
#import lib/philox
#import lib/reduce
#import lib/scan
#import lib/sample

// Thresholds on an order-preserving integer image of the scores, by bisection of its 32 bits.
// Larger floats have larger images; −0 and +0 differ, which is harmless here.
fn image(x: f32) -> u32 {
  let bits = bitcast<u32>(x);
  return select(bits | 0x80000000u, ~bits, (bits & 0x80000000u) != 0u);
}

// The largest threshold whose tokens (image ≥ threshold and ≥ floor) number at least `count`.
fn threshold_by_count(lane: u32, count: f32, floor_image: u32) -> u32 {
  var threshold = 0u;
  for (var bit = 0x80000000u; bit > 0u; bit >>= 1u) {
    let candidate = threshold | bit;
    var inside = 0.0;
    for (var i = lane; i < VOCABULARY; i += WORKGROUP) {
      inside += select(0.0, 1.0, image(score(i)) >= max(candidate, floor_image));
    }
    if reduce_sum(lane, inside) >= count {
      threshold = candidate;
    }
  }
  return max(threshold, floor_image);
}

fn mass_above(lane: u32, threshold: u32, largest: f32, inverse_temperature: f32) -> f32 {
  var mass = 0.0;
  for (var i = lane; i < VOCABULARY; i += WORKGROUP) {
    let x = score(i);
    if image(x) >= threshold {
      mass += exp((x - largest) * inverse_temperature);
    }
  }
  return reduce_sum(lane, mass);
}

// The largest threshold whose tokens hold at least the share `share` of the mass above the floor.
fn threshold_by_mass(lane: u32, share: f32, floor_image: u32, largest: f32, inverse_temperature: f32) -> u32 {
  let goal = share * mass_above(lane, floor_image, largest, inverse_temperature);
  var threshold = 0u;
  for (var bit = 0x80000000u; bit > 0u; bit >>= 1u) {
    let candidate = threshold | bit;
    if mass_above(lane, max(candidate, floor_image), largest, inverse_temperature) >= goal {
      threshold = candidate;
    }
  }
  return max(threshold, floor_image);
}

// Tokens first, first + step, … before `end`.
struct Span {
  first: u32,
  end: u32,
  step: u32,
}

// The largest logit of a span. `total` is Σ exp(logit − largest), `mass` the same with the differences divided by the
// temperature.
struct Terms {
  largest: f32,
  total: f32,
  mass: f32,
}

// In one pass (online softmax: Milakov and Gimelshein, arXiv:1805.02867), as softmax_terms of lib/logits.wgsl for
// a whole row. All LOADS are issued before the first is used.
fn terms_of(span: Span, inverse_temperature: f32) -> Terms {
  var terms = Terms(-1e30, 0.0, 0.0);
  for (var i = span.first; i < span.end; i += LOADS * span.step) {
    var values = array<f32, LOADS>();
    #unroll for (var j = 0u; j < LOADS; j++) {
      values[j] = logits[first_logit + min(i + j * span.step, span.end - 1u)];
    }
    var next = terms.largest;
    #unroll for (var j = 0u; j < LOADS; j++) {
      next = max(next, values[j]);
    }
    terms.total *= exp(terms.largest - next);
    terms.mass *= exp((terms.largest - next) * inverse_temperature);
    #unroll for (var j = 0u; j < LOADS; j++) {
      let inside = i + j * span.step < span.end;
      terms.total += select(0.0, exp(values[j] - next), inside);
      terms.mass += select(0.0, exp((values[j] - next) * inverse_temperature), inside);
    }
    terms.largest = next;
  }
  return terms;
}

// Places of a workgroup in blocks of CROWD neighbours, which share as many neighbouring logits: each reads every
// CROWDth of them, so that loads of neighbours lie together.
const CROWD: u32 = max(WORKGROUP / 32u, 1u);
const LOGITS_PER_LANE: u32 = (VOCABULARY + WORKGROUP - 1u) / WORKGROUP;
const LOGITS_PER_BLOCK: u32 = LOGITS_PER_LANE * CROWD;
// Of a block's logits, those of one place of a second turn.
const LOGITS_PER_PART: u32 = (LOGITS_PER_BLOCK + WORKGROUP - 1u) / WORKGROUP;

// What all places before each weigh.
var<workgroup> running: array<f32, WORKGROUP>;

// What is drawn from: tokens at or above a threshold.
struct Kept {
  threshold: u32,
  largest: f32,
  inverse_temperature: f32,
}

// What a token weighs: nothing below the threshold.
fn mass_of(i: u32, kept: Kept) -> f32 {
  let x = score(i);
  return select(0.0, exp((x - kept.largest) * kept.inverse_temperature), image(x) >= kept.threshold);
}

fn mass_of_span(span: Span, kept: Kept) -> f32 {
  var mass = 0.0;
  for (var i = span.first; i < span.end; i += LOADS * span.step) {
    #unroll for (var j = 0u; j < LOADS; j++) {
      let at = i + j * span.step;
      mass += select(0.0, mass_of(min(at, span.end - 1u), kept), at < span.end);
    }
  }
  return mass;
}

// The place whose mass takes the sum from `before` on beyond the goal; where rounding leaves that unreached, the last
// one with any. Places are exact as floats.
fn passing(lane: u32, place: u32, mass: f32, before: f32, goal: f32) -> u32 {
  running[place] = before;
  let last = select(0.0, f32(place + 1u), mass > 0.0);
  let passes = mass > 0.0 && before + mass > goal;
  let best = u32(reduce_max(lane, select(last, f32(2u * WORKGROUP - place), passes)));
  return select(max(best, 1u) - 1u, 2u * WORKGROUP - best, best > WORKGROUP);
}

// The token where the running mass, in index order, passes the share of the whole: the block that has it is
// found first, then all places share that one's tokens. `mass` is what the place's own tokens weigh.
fn draw(lane: u32, place: u32, mass: f32, kept: Kept, share: f32) {
  let sums = add_up(place, mass);
  let goal = share * sums.y;
  let block = passing(lane, place, mass, sums.x, goal) / CROWD;
  let rest = max(goal - running[block * CROWD], 0.0);

  let begin = block * LOGITS_PER_BLOCK;
  let end = min(begin + LOGITS_PER_BLOCK, VOCABULARY);
  let own = min(begin + place * LOGITS_PER_PART, end);
  let own_end = min(own + LOGITS_PER_PART, end);
  var part = 0.0;
  for (var i = own; i < own_end; i++) {
    part += mass_of(i, kept);
  }
  let before = add_up(place, part).x;
  let chosen = passing(lane, place, part, before, rest);
  if place == chosen {
    winner = own;
    if LOGITS_PER_PART > 1u {
      winner = walk(own, own_end, max(rest - before, 0.0), kept);
    }
  }
  workgroupBarrier();
}

// The same among a few tokens, one after the other.
fn walk(first: u32, end: u32, goal: f32, kept: Kept) -> u32 {
  var token = first;
  var mass = 0.0;
  for (var i = first; i < end; i++) {
    let more = mass_of(i, kept);
    if more > 0.0 && !(mass > goal) {
      token = i;
    }
    mass += more;
  }
  return token;
}

fn take_largest(lane: u32, largest: f32) {
  var index = f32(VOCABULARY);
  for (var i = lane; i < VOCABULARY; i += LOADS * WORKGROUP) {
    #unroll for (var j = 0u; j < LOADS; j++) {
      let at = min(i + j * WORKGROUP, VOCABULARY - 1u);
      // Exact: a vocabulary is far below 2^24.
      index = select(index, min(index, f32(at)), score(at) == largest);
    }
  }
  let lowest = -reduce_max(lane, -index);
  if lane == 0u {
    winner = min(u32(lowest), VOCABULARY - 1u);
  }
  workgroupBarrier();
}

fn run(lane: u32, workgroup: vec3<u32>, workgroups: vec3<u32>) {
  begin(workgroup.x);
  // Of read-only memory, so that all invocations are known to go the same way.
  let options = options_of(workgroup.x);
  let greedy = options.temperature <= 0.0;
  let inverse_temperature = select(1.0 / options.temperature, 1.0, greedy);
  let place = place_of(lane);
  let first = place / CROWD * LOGITS_PER_BLOCK;
  let own = Span(first + place % CROWD, min(first + LOGITS_PER_BLOCK, VOCABULARY), CROWD);
  let terms = terms_of(own, inverse_temperature);
  var largest = reduce_max(lane, terms.largest);
  let log_sum = largest + log(reduce_sum(lane, terms.total * exp(terms.largest - largest)));
  let as_given = scores_are_logits(options);
  if !as_given {
    var best = -1e30;
    for (var i = lane; i < VOCABULARY; i += WORKGROUP) {
      best = max(best, score(i));
    }
    largest = reduce_max(lane, best);
  }
  if greedy {
    take_largest(lane, largest);
  } else {
    var threshold = 0u;
    if options.top_k > 0u && options.top_k < VOCABULARY {
      threshold = threshold_by_count(lane, f32(options.top_k), 0u);
    }
    if options.top_p < 1.0 {
      threshold = threshold_by_mass(lane, options.top_p, threshold, largest, inverse_temperature);
    }
    if options.min_p > 0.0 {
      threshold = max(threshold, image(largest + log(options.min_p) * options.temperature));
    }
    let kept = Kept(threshold, largest, inverse_temperature);
    var mass = terms.mass * exp((terms.largest - largest) * inverse_temperature);
    if threshold > 0u || !as_given {
      mass = mass_of_span(own, kept);
    }
    let bits = philox(vec4(draws_made(), 0u, 0u, 0x73616d70u), vec2(options.seed_low, options.seed_high));
    draw(lane, place, mass, kept, uniform_float(bits.x));
  }
  if lane == 0u {
    let chosen = winner;
    end(workgroups.x, chosen, logits[first_logit + chosen] - log_sum);
  }
}
