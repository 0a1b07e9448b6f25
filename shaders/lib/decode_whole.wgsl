// The result of one range that holds every key seen: the last WINDOW.
@group(0) @binding(2) var<storage, read_write> output: array<vec4<f32>>;

fn decode_keys(split: u32, key_count: u32) -> vec2<u32> {
  return vec2(key_count - min(key_count, WINDOW), key_count);
}

fn store_result(head: u32, split: u32, vector: u32, sum: vec4<f32>, largest: f32, total: f32) {
  output[head * VECTORS + vector] = sum / total;
}
