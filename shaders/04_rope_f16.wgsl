// rope_forward, rope_backward read rows in f32 and write rows in f16, two elements per word. They write whole rows;
// 04_rope.wgsl rotates a part of each row in place. Pairs are those of that file, in whole fours of each head.
//
//   0 qkv        read    f32 [tokens, STRIDE]   heads of HEAD_DIM; the first HEADS rotate
//   1 table      read    vec2 [positions, HALF] (cos, sin)
//   2 documents  read    u32 [tokens]           start of each row's document
//   3 rotated    write   f16 [tokens, STRIDE]   overwritten
//   4 step       uniform
//
// Grid: one invocation for each four elements of a row: two pairs, or four that do not turn.
#import lib/step
#import lib/flat

@group(0) @binding(0) var<storage, read> qkv: array<vec2<f32>>;
@group(0) @binding(1) var<storage, read> table: array<vec2<f32>>;
@group(0) @binding(2) var<storage, read> documents: array<u32>;
@group(0) @binding(3) var<storage, read_write> rotated: array<u32>;
@group(0) @binding(4) var<uniform> step: Step;

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
