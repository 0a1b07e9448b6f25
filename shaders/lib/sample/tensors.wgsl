// What sample_forward binds and shares; lib/sample/score_biased.wgsl binds the bias besides.
@group(0) @binding(0) var<storage, read> logits: array<f32>;
@group(0) @binding(1) var<storage, read_write> seen: array<u32>;
@group(0) @binding(2) var<storage, read_write> token: array<u32>;
@group(0) @binding(3) var<storage, read_write> drawn: array<vec2<u32>>;
@group(0) @binding(4) var<storage, read_write> step: Step;
@group(0) @binding(5) var<uniform> options: Sampling;

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
  drawn[step.draws - options.turn0] = vec2(chosen, bitcast<u32>(logprob));
  token[0] = chosen;
  seen[chosen / 32u] |= 1u << (chosen % 32u);
  step.position += 1u;
  step.draws += 1u;
}
