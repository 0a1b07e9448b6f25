// How a kernel writes a gradient: WRITE_MODE 0 overwrites, 1 adds, 2 adds on all but the first
// micro-step of an accumulation.
fn adds(step_accumulate: u32) -> bool {
  return WRITE_MODE == 1u || (WRITE_MODE == 2u && step_accumulate != 0u);
}
