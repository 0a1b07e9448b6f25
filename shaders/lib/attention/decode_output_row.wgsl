// The result as a model's next layer reads it: a row of heads.
#operand output: array<vec4<f32>>

fn store_output(head: u32, vector: u32, sum: vec4<f32>, largest: f32, total: f32) {
  #output[head * VECTORS + vector] = sum / total;
}
