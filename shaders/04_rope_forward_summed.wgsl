// rope_forward, as 04_rope.wgsl, of rows of which a product split along K has left PARTS parts: adds them up in their
// order, rotates queries and keys, and writes whole rows.
//
// The first ROTATED_HEADS of each row rotate. Grid: one invocation per two vectors of a row, half a head apart.
#import lib/step
#import lib/flat
#import lib/rotate

// parts: f32 [PARTS, tokens, ROW_HEADS · HEAD_DIM] PART_ROW vectors from one to the next
#binding parts: array<vec4<f32>>  // read
#binding documents: array<u32>    // read     u32 [tokens]                               start of each row's document
#binding rows: array<vec4<f32>>   // write    f32 [tokens, ROW_HEADS · HEAD_DIM]         overwritten
#binding step: Step               // uniform

fn summed(i: u32) -> vec4<f32> {
  var sum = parts[i];
  #unroll for (var part = 1u; part < PARTS; part++) {
    sum += parts[part * PART_ROW + i];
  }
  return sum;
}

fn run(lane: u32, workgroup: vec3<u32>, workgroups: vec3<u32>) {
  let id = flat_id(lane, workgroup, workgroups);
  let vector = id % HALF;
  let head = id / HALF; // of all rows
  let row = head / ROW_HEADS;
  if row >= step.tokens {
    return;
  }
  let first = head * VECTORS + vector;
  let second = first + HALF;
  // Forward is back with the halves swapped.
  var halves = array(summed(second), summed(first));
  if head % ROW_HEADS < ROTATED_HEADS {
    halves = rotated_back(row, 4u * vector, halves[0], halves[1]);
  }
  rows[second] = halves[0];
  rows[first] = halves[1];
}
