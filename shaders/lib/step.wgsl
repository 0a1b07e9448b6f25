// What changes from one replay of a plan to the next, written by the host in one call (and, while
// decoding, advanced on the GPU by the sampling kernel).
struct Step {
  tokens: u32,         // rows of this batch
  position: u32,       // tokens already in the key-value cache before these rows
  accumulate: u32,     // 1: gradients add to those of earlier micro-steps
  draws: u32,          // random draws made so far by this generation
  learning_rate: f32,
  loss_scale: f32,     // factor on every dLogits
  gradient_scale: f32, // turns the accumulated sums into means over the step's targets
  max_grad_norm: f32,
  weight_decay: f32,
  still: u32,          // 1: a profile's step, which leaves weights and state as they are
  reserved: vec2<u32>, // the seed of dropout; while several rows are decoded x is the rows of a text in the cache
  carried: vec4<f32>,  // of each number that step_decision carries: x, y its factor, z, w what is added
  numbers: array<vec4<f32>, 6>, // the optimizer's, in its own order: x the number, y 1 less it
}
