// How a text's tokens are drawn: the uniform of one text, and a part of each row's `Choice`.
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
