// Sums over the invocations before each.
#import lib/reduce

#if SUBGROUPS
// Sums over the invocations before each by subgroups. An invocation's place is that
// of its subgroup: WGSL does not say that neighbours by index are neighbours there.
var<private> scan_turn: u32;
var<workgroup> scan_sums: array<array<f32, (WORKGROUP + 3u) / 4u>, 2>;

fn place_of(lane: u32) -> u32 {
  return subgroup_index * (WORKGROUP / subgroup_count) + subgroup_lane;
}

// Of the places before, and of all. Sums take turns with two arrays, as reductions do.
fn add_up(place: u32, mass: f32) -> vec2<f32> {
  let inside = subgroupExclusiveAdd(mass);
  let sum = subgroupAdd(mass);
  let turn = scan_turn;
  scan_turn = 1u - turn;
  if subgroup_lane == 0u {
    scan_sums[turn][subgroup_index] = sum;
  }
  workgroupBarrier();
  var before = 0.0;
  var whole = 0.0;
  for (var i = subgroup_lane; i < subgroup_count; i += WORKGROUP / subgroup_count) {
    before += select(0.0, scan_sums[turn][i], i < subgroup_index);
    whole += scan_sums[turn][i];
  }
  return vec2(subgroupAdd(before) + inside, subgroupAdd(whole));
}
#else
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
#endif
