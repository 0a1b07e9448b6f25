// The maps of dynamic 8-bit quantisation (Dettmers et al., arXiv:2110.02861). Seven decades up to 1. Each is cut
// into equal parts, twice as many as the decade below it. The values are the middles of the parts, and 0 and 1
// besides; the signed map has the middles with both signs. A code is a value's place in ascending order.
var<workgroup> signed_values: array<f32, 256>;
var<workgroup> unsigned_values: array<f32, 256>;

// The middle of a part: `number` counts parts through all decades from 2^first on.
fn part_value(number: u32, first: u32) -> f32 {
  var decades = array<f32, 7>(1e-6, 1e-5, 1e-4, 1e-3, 1e-2, 1e-1, 1.0);
  let decade = firstLeadingBit(number);
  let parts = f32(1u << decade);
  let middle = (f32(number) - parts + 0.5) / parts;
  return decades[decade - first] * (0.1 + 0.9 * middle);
}

fn signed_value(code: u32) -> f32 {
  if code == 127u || code == 255u {
    return f32(code == 255u);
  }
  if code < 127u {
    return -part_value(127u - code, 0u);
  }
  return part_value(code - 127u, 0u);
}

fn unsigned_value(code: u32) -> f32 {
  if code == 0u || code == 255u {
    return f32(code == 255u);
  }
  return part_value(code + 1u, 1u);
}

// The nearer of the codes around a value from −1 to 1, the upper one where both are as near.
fn signed_code(x: f32) -> u32 {
  var code = 0u;
  for (var bit = 128u; bit > 0u; bit >>= 1u) {
    code += select(0u, bit, x >= signed_values[code + bit]);
  }
  let below = signed_values[code];
  let above = signed_values[min(code + 1u, 255u)];
  return min(code + select(0u, 1u, x - below >= 0.5 * (above - below)), 255u);
}

// The same from 0 to 1.
fn unsigned_code(x: f32) -> u32 {
  var code = 0u;
  for (var bit = 128u; bit > 0u; bit >>= 1u) {
    code += select(0u, bit, x >= unsigned_values[code + bit]);
  }
  let below = unsigned_values[code];
  let above = unsigned_values[min(code + 1u, 255u)];
  return min(code + select(0u, 1u, x - below >= 0.5 * (above - below)), 255u);
}
