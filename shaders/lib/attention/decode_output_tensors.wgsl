// The result as a tensor, and the natural logarithm of Σ exp(score) for each batch item and head. A
// query that sees no key gives zeros, and MASKED for the logarithm.
#operand output: array<Quad>
#operand lse: array<f32>

fn store_output(head: u32, vector: u32, sum: vec4<f32>, largest: f32, total: f32) {
  let weights = max(total, 1e-30);
  let row = row_at(geometry.output, head / HEADS, head % HEADS, 0u);
  #output[row + vector] = pack_quad(sum / weights);
  if vector == 0u {
    #lse[head] = select(MASKED, largest * LN_2 + log(weights), total > 0.0);
  }
}
