// Sums over the invocations before each through workgroup memory. WORKGROUP is a power of two.
var<workgroup> scan_sums: array<f32, WORKGROUP>;

fn place_of(lane: u32) -> u32 {
  return lane;
}

// Of the places before, and of all.
fn add_up(place: u32, mass: f32) -> vec2<f32> {
  scan_sums[place] = mass;
  for (var reach = 1u; reach < WORKGROUP; reach *= 2u) {
    workgroupBarrier();
    let more = select(0.0, scan_sums[place - min(reach, place)], place >= reach);
    workgroupBarrier();
    scan_sums[place] += more;
  }
  workgroupBarrier();
  let total = vec2(select(0.0, scan_sums[max(place, 1u) - 1u], place > 0u), scan_sums[WORKGROUP - 1u]);
  workgroupBarrier();
  return total;
}
