// checksum_forward: sums that tell the words of a buffer from others, and their order. Each word is mixed
// with its index, and what that gives is added modulo 2³², so that neither the order of the additions nor
// the adapter changes a sum. (The mixing is the end of MurmurHash3, by Appleby.)
//
// Grid: one invocation a sum.
#import lib/flat

#binding words: array<u32>  // read        u32 [COUNT]
#binding sums: array<u32>   // read_write  u32 [LANES]  overwritten: lane i has words i, i + LANES, …

fn mixed(word: u32, index: u32) -> u32 {
  var x = word + index * 0x9e3779b9u;
  x = (x ^ (x >> 16u)) * 0x85ebca6bu;
  x = (x ^ (x >> 13u)) * 0xc2b2ae35u;
  return x ^ (x >> 16u);
}

fn run(lane: u32, workgroup: vec3<u32>, workgroups: vec3<u32>) {
  let id = flat_id(lane, workgroup, workgroups);
  if id < LANES {
    var sum = 0u;
    for (var i = id; i < COUNT; i += LANES) {
      sum += mixed(words[i], i);
    }
    sums[id] = sum;
  }
}
