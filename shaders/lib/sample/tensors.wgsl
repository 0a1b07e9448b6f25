// What sample_forward binds and shares; lib/sample/score_biased.wgsl binds the bias besides.
struct Sampling {
  temperature: f32,
  top_p: f32,
  min_p: f32,
  repetition_penalty: f32,
  top_k: u32,       // 0: off
  seed_low: u32,
  seed_high: u32,
  turn0: u32,       // draws made before this submit: slot of `drawn` = draws − turn0
}

@group(0) @binding(0) var<storage, read> logits: array<f32>;
@group(0) @binding(1) var<storage, read_write> seen: array<u32>;
@group(0) @binding(2) var<storage, read_write> token: array<u32>;
@group(0) @binding(3) var<storage, read_write> drawn: array<vec2<u32>>;
@group(0) @binding(4) var<storage, read_write> step: Step;
@group(0) @binding(5) var<uniform> options: Sampling;

var<workgroup> winner: u32;
