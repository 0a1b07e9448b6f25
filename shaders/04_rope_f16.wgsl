// rope_forward, rope_backward read rows in f32 and write rows in f16, two elements per word. They write whole rows;
// 04_rope.wgsl rotates a part of each row in place. Pairs are those of that file, in whole fours of each head.
//
// Grid: one invocation for each four elements of a row: two pairs, or four that do not turn.
#import lib/step
#import lib/flat

#binding qkv: array<vec2<f32>>    // read     f32 [tokens, STRIDE]   heads of HEAD_DIM; the first HEADS rotate
#binding table: array<vec2<f32>>  // read     vec2 [positions, HALF] (cos, sin)
#binding documents: array<u32>    // read     u32 [tokens]           start of each row's document
#binding rotated: array<u32>      // write    f16 [tokens, STRIDE]   overwritten
#binding step: Step               // uniform

fn run(lane: u32, workgroup: vec3<u32>, workgroups: vec3<u32>) {
  let id = flat_id(lane, workgroup, workgroups);
  let t = id / (STRIDE / 4u);
  if t >= step.tokens {
    return;
  }
  let head = id % (STRIDE / 4u) / (HEAD_DIM / 4u);
  let four = id % (HEAD_DIM / 4u);
  let first = (t * STRIDE + head * HEAD_DIM) / 2u;
  if head >= HEADS || four >= HALF / 2u {
    rotated[first + 2u * four] = pack_pair(qkv[first + 2u * four]);
    rotated[first + 2u * four + 1u] = pack_pair(qkv[first + 2u * four + 1u]);
    return;
  }
  let at = (step.position + t - documents[t]) * HALF + 2u * four;
  let turns = transpose(mat2x2(table[at], table[at + 1u])) * mat2x2(1.0, 0.0, 0.0, DIRECTION);
  let a = qkv[first + four];
  let b = qkv[first + four + HALF / 2u];
  rotated[first + four] = pack_pair(a * turns[0] - b * turns[1]);
  rotated[first + four + HALF / 2u] = pack_pair(b * turns[0] + a * turns[1]);
}
