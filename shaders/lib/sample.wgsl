// How a text's tokens are drawn: the uniform of one text, and a part of each row's `Choice`.
struct Sampling {
  temperature: f32,
  top_p: f32,
  min_p: f32,
  repetition_penalty: f32,
  top_k: u32,       // 0: off
  seed_low: u32,
  seed_high: u32,
  first_draw: u32,  // draws made before this submit: slot of `drawn` = draws − first_draw
}

#if BATCHED
// What sample_forward binds and shares where each of several rows draws a token of its own text.
struct Choice {
  options: Sampling,
  offset: u32,      // draws made less position, which wraps
  last: u32,        // position behind which the row does not advance
  reserved: vec2<u32>,
}

#binding logits: array<f32>       // read        f32 [rows, VOCABULARY]
#binding seen: array<u32>         // read_write  u32 [rows, ceil(VOCABULARY / 32)]
#binding token: array<u32>        // read_write  u32 [rows]
#binding drawn: array<vec2<u32>>  // read_write  vec2<u32> [turns, rows]
#binding documents: array<u32>    // read_write  u32 [rows]        row less position, which wraps; positions advance by one
#binding choices: array<Choice>   // read        Choice [rows]

var<workgroup> winner: u32;

var<private> own_row: u32;
var<private> first_logit: u32;
var<private> first_seen: u32;
var<private> options: Sampling;

fn options_of(row: u32) -> Sampling {
  return choices[row].options;
}

fn begin(row: u32) {
  own_row = row;
  first_logit = row * VOCABULARY;
  first_seen = row * ((VOCABULARY + 31u) / 32u);
  options = options_of(row);
}

fn own_position() -> u32 {
  return own_row - documents[own_row];
}

fn draws_made() -> u32 {
  return own_position() + choices[own_row].offset;
}

fn end(rows: u32, chosen: u32, logprob: f32) {
  let turn = draws_made() - options.first_draw;
  // A row that does not advance any more may have drawn before first_draw.
  if turn < arrayLength(&drawn) / rows {
    drawn[turn * rows + own_row] = vec2(chosen, bitcast<u32>(logprob));
  }
  token[own_row] = chosen;
  seen[first_seen + chosen / 32u] |= 1u << (chosen % 32u);
  if own_position() < choices[own_row].last {
    documents[own_row] -= 1u;
  }
}
#else
#import lib/step
// What sample_forward binds and shares.
#binding logits: array<f32>       // read        f32 [VOCABULARY]
#binding seen: array<u32>         // read_write  u32 [ceil(VOCABULARY / 32)]  bit set of tokens already in the text
#binding token: array<u32>        // read_write  u32 [1]                      the drawn token (the next step's input)
#binding drawn: array<vec2<u32>>  // read_write  vec2<u32> [turns]            (token, bits of its log-probability) a draw
#binding step: Step               // read_write  position and draws advance by one
#binding options: Sampling        // uniform

var<workgroup> winner: u32;

const first_logit = 0u;
const first_seen = 0u;

fn begin(row: u32) {}

fn options_of(row: u32) -> Sampling {
  return options;
}

fn draws_made() -> u32 {
  return step.draws;
}

fn end(rows: u32, chosen: u32, logprob: f32) {
  drawn[step.draws - options.first_draw] = vec2(chosen, bitcast<u32>(logprob));
  token[0] = chosen;
  seen[chosen / 32u] |= 1u << (chosen % 32u);
  step.position += 1u;
  step.draws += 1u;
}
#endif

// What is drawn from: the logit after the repetition penalty (Keskar et al., arXiv:1909.05858). BIASED: plus the token's
// bias. A masked token has a bias of -1e30, far below any logit: the host sets top_k to the number of the others, whose
// threshold leaves it out.
#if BIASED
#binding bias: array<f32>  // read  f32 [VOCABULARY]
#endif

fn scores_are_logits(options: Sampling) -> bool {
#if BIASED
  return false;
#else
  return options.repetition_penalty == 1.0;
#endif
}

fn score(i: u32) -> f32 {
  let x = logits[first_logit + i];
  if options.repetition_penalty == 1.0 || ((seen[first_seen + i / 32u] >> (i % 32u)) & 1u) == 0u {
#if BIASED
    return x + bias[i];
#else
    return x;
#endif
  }
  let penalised = select(x * options.repetition_penalty, x / options.repetition_penalty, x > 0.0);
#if BIASED
  return penalised + bias[i];
#else
  return penalised;
#endif
}
