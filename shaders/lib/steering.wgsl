// What a step says of its loss besides targets, written by the host.
struct Steering {
  temperature: f32,    // divides the logits
  by_temperature: f32, // 1 over it
  soft_ratio: f32,     // the temperature over that of soft targets
  soft_factor: f32,    // share of the soft targets in the loss, times the square of their temperature
  hard_share: f32,     // share of the targets
  soft_count: u32,     // places of ids in a row of soft targets; one for the rest follows
  reverse: u32,        // 1: KL(student ‖ teacher), 0: KL(teacher ‖ student)
  rest: u32,           // 1: the mass that the ids leave over is a class; 0: both are renormalised over the ids
}
