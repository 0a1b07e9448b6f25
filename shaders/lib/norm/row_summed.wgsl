// What is normalised is the residual stream with what a product split along K adds to it: the PARTS parts, in their
// order, and the stream from before. The sum is kept for what reads the stream later.
@group(0) @binding(4) var<storage, read> before: array<Vector>;
@group(0) @binding(5) var<storage, read_write> stream: array<Vector>;

fn row(i: u32) -> Vector {
  var sum = x[i];
  for (var part = 1u; part < PARTS; part++) {
    sum += x[part * PART_ROW + i];
  }
  sum += before[i];
  stream[i] = sum;
  return sum;
}
