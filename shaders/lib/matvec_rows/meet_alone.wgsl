// The sums of a unit of matvec_rows that one invocation has: LANES = 1.
var<private> own: array<f32, SUMS>;

fn unit_place(lane: u32) -> vec2<u32> {
  return vec2(lane, 0u);
}

fn meet(lane: u32, place: vec2<u32>, sums: ptr<function, array<f32, SUMS>>) {
  own = *sums;
}

fn total(unit: u32, s: u32) -> f32 {
  return own[s];
}
