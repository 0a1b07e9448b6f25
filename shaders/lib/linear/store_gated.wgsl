// Sums of a product whose matrix has the rows of gate, then those of up: as they are to `c`, gate | up, and
// activate(gate) · up to `activated`, f32 [M, APART].
@group(0) @binding(5) var<storage, read_write> activated: array<vec4<f32>>;

// Columns col … col + 3 of gate, and the columns of up that they belong to.
fn store_pair(row: u32, col: u32, gate: vec4<f32>, up: vec4<f32>) {
  let i = (row * C_STRIDE + col) / 4u;
  c[i] = gate;
  c[i + APART / 4u] = up;
  let activation = vec4(activate(gate.x), activate(gate.y), activate(gate.z), activate(gate.w));
  activated[(row * APART + col) / 4u] = activation * up;
}
