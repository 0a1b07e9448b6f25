// The gradient of a row's key or value head, one of its vectors: what each query head of a group has left of it on its
// own, added up in the order of the heads. Key heads come before value heads.
fn of_group(row: u32, kv_head: u32, vector: u32) -> vec4<f32> {
  let part = (row * 2u * HEADS + kv_head * MEMBERS) * VECTORS + vector;
  var sum = parts[part];
  for (var member = 1u; member < MEMBERS; member++) {
    sum += parts[part + member * VECTORS];
  }
  return sum;
}
