// adamw8bit_forward: one AdamW update with both moments as 8-bit codes, a scale per 256 elements (Dettmers et
// al., "8-bit Optimizers via Block-wise Quantization", arXiv:2110.02861), as torchao's AdamW8bit: the step is by
// the moments before they are rounded to codes. Clipping is fused.
//
// Grid: one workgroup per block of 256 elements. Each invocation has one word of codes, or several.
#import lib/step
#import lib/range
#import lib/flat
#import lib/reduce
#import lib/optimizer/dynamic

#binding weights: array<f32>    // read_write  f32 [shard]
#binding gradients: array<f32>  // read        f32 [shard]
#binding moment1: array<u32>    // read_write  u32 [shard]    four codes of the signed map per word, the first lowest
#binding moment2: array<u32>    // read_write  u32 [shard]    four codes of the unsigned map per word
#binding scales: array<f32>     // read_write  f32 [shard, 2] of both moments for each block
#binding optimizer: array<f32>  // read        f32 [4]        of step_decision; a zero in slot 3 leaves everything as it is
#binding step: Step             // uniform
#binding range: Range           // uniform     row0: first weight, col0: first gradient, cols: elements that are decayed
#binding place: Range           // uniform     row0: first word of moment1, col0: of moment2, rows: first block

const BLOCK_WORDS: u32 = 64u;

// Both moments of four elements after their gradients; old scales in `by`.
struct Moments {
  first: vec4<f32>,
  second: vec4<f32>,
}

fn next_moments(word: u32, element: u32, by: vec2<f32>) -> Moments {
  let old1 = moment1[place.row0 + word];
  let old2 = moment2[place.col0 + word];
  let beta1 = step.numbers[BETA1];
  let beta2 = step.numbers[BETA2];
  var next: Moments;
  for (var j = 0u; j < 4u; j++) {
    let gradient = gradients[range.col0 + element + j] * optimizer[2];
    let m = by.x * signed_values[(old1 >> (8u * j)) & 0xffu];
    let v = by.y * unsigned_values[(old2 >> (8u * j)) & 0xffu];
    next.first[j] = beta1.x * m + beta1.y * gradient;
    next.second[j] = beta2.x * v + beta2.y * gradient * gradient;
  }
  return next;
}

fn run(lane: u32, workgroup: vec3<u32>, workgroups: vec3<u32>) {
  let block = flat_workgroup(workgroup, workgroups);
  if block >= CODED_BLOCKS || optimizer[3] == 0.0 {
    return;
  }
  for (var code = lane; code < 256u; code += WORKGROUP) {
    signed_values[code] = signed_value(code);
    unsigned_values[code] = unsigned_value(code);
  }
  workgroupBarrier();
  let at = 2u * (place.rows + block);
  let by = vec2(scales[at], scales[at + 1u]);
  var largest1 = 0.0;
  var largest2 = 0.0;
  for (var w = lane; w < BLOCK_WORDS; w += WORKGROUP) {
    let word = block * BLOCK_WORDS + w;
    let next = next_moments(word, 4u * word, by);
    for (var j = 0u; j < 4u; j++) {
      largest1 = max(largest1, abs(next.first[j]));
      largest2 = max(largest2, next.second[j]);
    }
  }
  let scale1 = max(reduce_max(lane, largest1), 1e-12);
  let scale2 = max(reduce_max(lane, largest2), 1e-12);
  for (var w = lane; w < BLOCK_WORDS; w += WORKGROUP) {
    let word = block * BLOCK_WORDS + w;
    let next = next_moments(word, 4u * word, by);
    var codes1 = 0u;
    var codes2 = 0u;
    for (var j = 0u; j < 4u; j++) {
      let element = 4u * word + j;
      let m = next.first[j];
      let v = next.second[j];
      codes1 |= signed_code(m / scale1) << (8u * j);
      codes2 |= unsigned_code(v / scale2) << (8u * j);
      let decay = select(0.0, step.learning_rate * step.weight_decay, element < range.cols);
      let denominator = sqrt(v / optimizer[1]) + step.numbers[EPSILON].x;
      let weight = weights[range.row0 + element];
      weights[range.row0 + element] = weight - decay * weight
        - step.learning_rate * (m / optimizer[0]) / denominator;
    }
    if step.still == 0u {
      moment1[place.row0 + word] = codes1;
      moment2[place.col0 + word] = codes2;
    }
  }
  if lane == 0u && step.still == 0u {
    scales[at] = scale1;
    scales[at + 1u] = scale2;
  }
}
