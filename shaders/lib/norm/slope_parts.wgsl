// The gradient of a norm's result, of which a product split along K has left PARTS parts: added up in their order.
fn slope(i: u32) -> Vector {
  var sum = d_y[i];
  for (var part = 1u; part < PARTS; part++) {
    sum += d_y[part * PART_ROW + i];
  }
  return sum;
}
