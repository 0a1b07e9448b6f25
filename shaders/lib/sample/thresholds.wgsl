// Thresholds on an order-preserving integer image of the scores, by bisection of its 32 bits.
// Larger floats have larger images; −0 and +0 differ, which is harmless here.
fn image(x: f32) -> u32 {
  let bits = bitcast<u32>(x);
  return select(bits | 0x80000000u, ~bits, (bits & 0x80000000u) != 0u);
}

// The largest threshold whose tokens (image ≥ threshold and ≥ floor) number at least `count`.
fn threshold_by_count(lane: u32, count: f32, floor_image: u32) -> u32 {
  var threshold = 0u;
  for (var bit = 0x80000000u; bit > 0u; bit >>= 1u) {
    let candidate = threshold | bit;
    var inside = 0.0;
    for (var i = lane; i < VOCABULARY; i += WORKGROUP) {
      inside += select(0.0, 1.0, image(score(i)) >= max(candidate, floor_image));
    }
    if reduce_sum(lane, inside) >= count {
      threshold = candidate;
    }
  }
  return max(threshold, floor_image);
}

fn mass_above(lane: u32, threshold: u32, largest: f32, inverse_temperature: f32) -> f32 {
  var mass = 0.0;
  for (var i = lane; i < VOCABULARY; i += WORKGROUP) {
    let x = score(i);
    if image(x) >= threshold {
      mass += exp((x - largest) * inverse_temperature);
    }
  }
  return reduce_sum(lane, mass);
}

// The largest threshold whose tokens hold at least the share `share` of the mass above the floor.
fn threshold_by_mass(lane: u32, share: f32, floor_image: u32, largest: f32, inverse_temperature: f32) -> u32 {
  let goal = share * mass_above(lane, floor_image, largest, inverse_temperature);
  var threshold = 0u;
  for (var bit = 0x80000000u; bit > 0u; bit >>= 1u) {
    let candidate = threshold | bit;
    if mass_above(lane, max(candidate, floor_image), largest, inverse_temperature) >= goal {
      threshold = candidate;
    }
  }
  return max(threshold, floor_image);
}
