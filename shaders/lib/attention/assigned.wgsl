// The tile and the owner of a workgroup. Workgroups mostly begin in the order of their ids, x first.
// Up to INTERLEAVED of them begin with the tiles of all owners that have most to do under a causal
// mask, so that none of these is left alone at the end; of more, an owner's tiles stay together, so
// that a cache holds the other side of them.
fn assigned(workgroup: vec3<u32>, workgroups: vec3<u32>) -> vec2<u32> {
  if workgroups.x * workgroups.y > INTERLEAVED {
    return workgroup.xy;
  }
  let id = workgroup.y * workgroups.x + workgroup.x;
  let tile = id / workgroups.y;
  return vec2(select(tile, workgroups.x - 1u - tile, LAST_IS_LONGEST), id % workgroups.y);
}
