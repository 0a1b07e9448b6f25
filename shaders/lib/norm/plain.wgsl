// The result of a norm.
@group(0) @binding(2) var<storage, read_write> y: array<Vector>;

fn store(i: u32, value: Vector) {
  y[i] = value;
}
