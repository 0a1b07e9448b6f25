// One-dimensional ids over a grid folded into two dimensions (65,535 workgroups at most in each).
fn flat_workgroup(workgroup: vec3<u32>, workgroups: vec3<u32>) -> u32 {
  return workgroup.x + workgroup.y * workgroups.x;
}

fn flat_id(lane: u32, workgroup: vec3<u32>, workgroups: vec3<u32>) -> u32 {
  return flat_workgroup(workgroup, workgroups) * WORKGROUP + lane;
}
