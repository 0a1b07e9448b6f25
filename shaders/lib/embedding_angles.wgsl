// What the embedding of a decoded row leaves for the row's layers: the ROTATED numbers that a table turns by at its
// position. Layers read these few numbers where they keep what they alone use: each binding of each dispatch costs a
// browser's host time.
//
//   5 angles  write  f32 [ROTATED]              overwritten
//   6 table   read   f32 [positions, ROTATED]   (cos, sin) by pair
@group(0) @binding(5) var<storage, read_write> angles: array<f32>;
@group(0) @binding(6) var<storage, read> table: array<f32>;

fn leave_angles(id: u32) {
  for (var i = id; i < ROTATED; i += INVOCATIONS) {
    angles[i] = table[step.position * ROTATED + i];
  }
}
