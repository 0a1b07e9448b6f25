// The result of a norm in f16, two to a word, for products that round it.
@group(0) @binding(2) var<storage, read_write> y: array<vec2<u32>>;

fn store(i: u32, value: Vector) {
  y[i] = vec2(pack2x16float(value.xy), pack2x16float(value.zw));
}
