// The embedding of rows whose layers look up their own angles.
fn leave_angles(id: u32) {}
