// Sums of a product that are the gradient of activate(gate) · up. From them come the gradients of gate and up, to `c`,
// f32 [M, 2 · N], gate | up. What the activation gave is computed once more, which is cheaper than to keep it.
@group(0) @binding(5) var<storage, read> gate_up: array<vec4<f32>>;        // f32 [M, 2 · N]
@group(0) @binding(6) var<storage, read_write> activated: array<vec4<f32>>; // f32 [M, N]

// Columns col … col + 3 of gate, and those of up that belong to them.
fn store_c(row: u32, col: u32, column: u32, slope: vec4<f32>) {
  let i = (row * 2u * N + col) / 4u;
  let gate = gate_up[i];
  let up = gate_up[i + N / 4u];
  let activation = vec4(activate(gate.x), activate(gate.y), activate(gate.z), activate(gate.w));
  let derivative = vec4(
    activate_derivative(gate.x), activate_derivative(gate.y),
    activate_derivative(gate.z), activate_derivative(gate.w));
  c[i] = slope * up * derivative;
  c[i + N / 4u] = slope * activation;
  activated[(row * N + col) / 4u] = activation * up;
}
