// What the embedding of a decoded row leaves for the row's layers: the ROTATED numbers that a table turns by at its
// position. Layers read these few numbers where they keep what they alone use: each binding of each dispatch costs a
// browser's host time.
#binding angles: array<f32>  // write  f32 [ROTATED]              overwritten
#binding table: array<f32>   // read   f32 [positions, ROTATED]   (cos, sin) by pair

fn leave_angles(id: u32) {
  for (var i = id; i < ROTATED; i += INVOCATIONS) {
    angles[i] = table[step.position * ROTATED + i];
  }
}
