// Teams of TEAM invocations side by side, which add up what they have.
var<workgroup> team_parts: array<vec2<f32>, WORKGROUP>;

const TEAM_COUNT: u32 = WORKGROUP / TEAM;

// The sum of the values of an invocation's team. All invocations of a workgroup have to call it.
fn team_sum(lane: u32, value: vec2<f32>) -> vec2<f32> {
  team_parts[lane] = value;
  workgroupBarrier();
  let first = lane / TEAM * TEAM;
  var sum = vec2<f32>();
  for (var i = 0u; i < TEAM; i++) {
    sum += team_parts[first + i];
  }
  workgroupBarrier();
  return sum;
}
