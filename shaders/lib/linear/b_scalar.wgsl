// Operand `b` of the linear kernels in f32, one element at a time, for rows of any length.
@group(0) @binding(1) var<storage, read> b: array<f32>;

alias FetchedB = vec4<f32>;

fn fetch_b(outer: u32, inner: u32) -> FetchedB {
  let i = outer * B_STRIDE + inner;
  var value = vec4(b[i], 0.0, 0.0, 0.0);
  if inner + 1u < B_INNER {
    value.y = b[i + 1u];
  }
  if inner + 2u < B_INNER {
    value.z = b[i + 2u];
  }
  if inner + 3u < B_INNER {
    value.w = b[i + 3u];
  }
  return value;
}

fn elements_b(fetched: FetchedB) -> vec4<f32> {
  return fetched;
}
