// The result of a norm added to the residual stream (Gemma Team, arXiv:2408.00118).
@group(0) @binding(2) var<storage, read_write> y: array<Vector>;
@group(0) @binding(4) var<storage, read> residual: array<Vector>;

fn store(i: u32, value: Vector) {
  y[i] = value + residual[i];
}
