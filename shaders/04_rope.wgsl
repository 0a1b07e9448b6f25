// rope_forward, rope_backward: rotates the query and key heads of each row in place, by the angle
// of its position in its document; backward rotates by the negative angle (the rotation is
// orthonormal). Pairs are (i, i + HALF), as in Hugging Face's checkpoints: of a whole head where
// HALF is HEAD_DIM / 2, else of its first 2 · HALF elements.
// (Su et al., "RoFormer", arXiv:2104.09864)
//
// DIRECTION is 1 forward and -1 backward. Grid: one invocation a pair.
#import lib/step
#import lib/flat

#binding qkv: array<f32>          // read_write  f32 [tokens, STRIDE]           heads of HEAD_DIM; the first HEADS rotate
#binding table: array<vec2<f32>>  // read        vec2 [positions, HALF]         (cos, sin)
#binding documents: array<u32>    // read        u32 [tokens]                   start of each row's document
#binding step: Step               // uniform

fn run(lane: u32, workgroup: vec3<u32>, workgroups: vec3<u32>) {
  let id = flat_id(lane, workgroup, workgroups);
  let pair = id % HALF;
  let head = id / HALF % HEADS;
  let t = id / (HALF * HEADS);
  if t >= step.tokens {
    return;
  }
  let position = step.position + t - documents[t];
  let rotation = table[position * HALF + pair] * vec2(1.0, DIRECTION);
  let i = t * STRIDE + head * HEAD_DIM + pair;
  let a = qkv[i];
  let b = qkv[i + HALF];
  qkv[i] = a * rotation.x - b * rotation.y;
  qkv[i + HALF] = b * rotation.x + a * rotation.y;
}
