// How the sums of a unit's invocations meet.
#if SUBGROUPS
// The sums of a unit of matvec_rows whose LANES are LANE_BLOCKS blocks of BLOCK invocations, at most the narrowest subgroup:
// at each exchange an invocation keeps half of its sums. All exchanges take about one shuffle per sum. Subgroup ids come from
// the builtin, never from dividing the invocation index.
var<private> subgroup_index: u32;
var<private> subgroup_count: u32;
var<private> subgroup_lane: u32;
const LANE_BLOCKS: u32 = LANES / BLOCK;
var<workgroup> parts: array<f32, WORKGROUP / BLOCK * SUMS>;

fn unit_place(lane: u32) -> vec2<u32> {
  let block = subgroup_index * (WORKGROUP / subgroup_count / BLOCK) + subgroup_lane / BLOCK;
  return vec2(block / LANE_BLOCKS, block % LANE_BLOCKS * BLOCK + subgroup_lane % BLOCK);
}

// SUM_ROWS rows of COLUMNS sums, a power of two. Of each, exchange e leaves KEPT_e of them, which begin as its first ones
// or its last ones. It adds the same two lanes however many columns there are.
fn halve(lane: u32, at: u32, sums: ptr<function, array<f32, SUMS>>) {
  #unroll for (var e = 0u; e < EXCHANGES; e++) {
    const distance_#e = BLOCK >> (e + 1u);
    const apart_#e = COLUMNS >> (e + 1u);
    let upper_#e = (lane & distance_#e) != 0u;
    #unroll for (var p = 0u; p < SUM_ROWS; p++) {
      #unroll for (var i = 0u; i < KEPT_#e; i++) {
        let low = (*sums)[p * COLUMNS + i];
        let high = (*sums)[p * COLUMNS + i + apart_#e];
        (*sums)[p * COLUMNS + i] = select(low, high, upper_#e) + subgroupShuffleXor(select(high, low, upper_#e), distance_#e);
      }
    }
  }
  if lane % SHARE == 0u {
    #unroll for (var p = 0u; p < SUM_ROWS; p++) {
      #unroll for (var i = 0u; i < KEPT; i++) {
        parts[at + p * COLUMNS + i + lane / SHARE * KEPT] = (*sums)[p * COLUMNS + i];
      }
    }
  }
}

fn meet(lane: u32, place: vec2<u32>, sums: ptr<function, array<f32, SUMS>>) {
  halve(place.y % BLOCK, (place.x * LANE_BLOCKS + place.y / BLOCK) * SUMS, sums);
  workgroupBarrier();
}

fn total(unit: u32, s: u32) -> f32 {
  var sum = parts[unit * LANE_BLOCKS * SUMS + s];
  for (var i = 1u; i < LANE_BLOCKS; i++) {
    sum += parts[(unit * LANE_BLOCKS + i) * SUMS + s];
  }
  return sum;
}
#elif ALONE
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
#else
// The sums of the LANES = WORKGROUP invocations of a unit of matvec_rows, through workgroup memory.
const SUMS_PITCH: u32 = WORKGROUP + 1u;
var<workgroup> parts: array<f32, SUMS * SUMS_PITCH>;

fn unit_place(lane: u32) -> vec2<u32> {
  return vec2(0u, lane);
}

fn meet(lane: u32, place: vec2<u32>, sums: ptr<function, array<f32, SUMS>>) {
  #unroll for (var s = 0u; s < SUMS; s++) {
    parts[s * SUMS_PITCH + lane] = (*sums)[s];
  }
  workgroupBarrier();
  for (var s = lane; s < SUMS; s += WORKGROUP) {
    var sum = 0.0;
    for (var i = 0u; i < WORKGROUP; i++) {
      sum += parts[s * SUMS_PITCH + i];
    }
    parts[s * SUMS_PITCH] = sum;
  }
  workgroupBarrier();
}

fn total(unit: u32, s: u32) -> f32 {
  return parts[s * SUMS_PITCH];
}
#endif
