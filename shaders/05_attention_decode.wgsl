// attention_decode, attention_decode_split: one query row against the key-value cache, for a range
// of keys and up to GROUP query heads of one key-value head in a workgroup (Dao et al.,
// "Flash-Decoding for long-context inference", 2023).
//
// Over a cache, whose keys `key_vector` reads (lib/attention/decode_operands.wgsl, and there lib/cache/rows.wgsl):
//
//   0 query   read   f32 [HEADS · HEAD_DIM …]      the row's query heads come first
//   1 cache   read   [cache rows, row]             key heads, then value heads; lib/cache/
//   2 output  write  f32 [HEADS · HEAD_DIM]        overwritten
//   3 step    uniform                              step.position + 1 positions, the newest appended already, of
//                                                  which the query sees the last WINDOW
//
// Over a cache that holds the texts of several rows, documents
// comes behind it, read, u32 [rows], and query and output have a row for each; step.position is not looked at.
//
// Over tensors, elements f32 or f16:
//
//   0 query   read   [batch, HEADS, 1, HEAD_DIM]        strides of all tensors in the geometry
//   1 keys    read   [batch, KV_HEADS, rows, HEAD_DIM]
//   2 values  read   [batch, KV_HEADS, rows, HEAD_DIM]
//   3 mask    read   u32                                the interval of keys of each batch item
//   4 output  write  [batch, HEADS, 1, HEAD_DIM]        overwritten, and so is
//   5 lse     write  f32 [batch, HEADS]                 natural log of Σ exp(score)
//   6 geometry uniform                                 lib/attention/geometry.wgsl
//
// attention_decode_split writes no output and no lse, but in their place
//     partials  write  f32 [batch · HEADS, SPLITS, HEAD_DIM + 4]  active ranges: lib/attention/decode_partial.wgsl
//
// Heads are counted over the batch: a query head of item b is b · HEADS + h.
// Each key and value is read once for all query heads of the workgroup (lib/attention/decode_turns.wgsl).
// Grid: x over batch items, key-value heads and blocks of their query heads, y over ranges. Of several
// ranges those without keys return at once; a single one without keys gives zeros. Workgroup memory:
// 16 · VECTORS · (GROUP + TEAMS) + 8 · TEAMS · GROUP bytes, and without subgroups what sums over
// lanes take.
#import lib/attention/decode_operands
#import lib/attention/decode_turns

// The MEMBERS query heads of a key-value head come in blocks of GROUP.
const BLOCKS: u32 = (MEMBERS + GROUP - 1u) / GROUP;

var<workgroup> queries: array<vec4<f32>, GROUP * VECTORS>;

fn scaled_query(i: u32) -> vec4<f32> {
  return queries[i];
}

fn run(lane: u32, workgroup: vec3<u32>, workgroups: vec3<u32>) {
  let kv_head = workgroup.x / BLOCKS;
  let first = workgroup.x % BLOCKS * GROUP;
  let split = workgroup.y;
  let range = decode_keys(split, seen_keys(kv_head / KV_HEADS));
  if SPLITS > 1u && range.x >= range.y {
    return;
  }
  let place = lane_place(lane);
  // Before the queries are waited for.
  var turn: Turn;
  if range.x < range.y {
    turn = load_turn(range.x + place.x, range.y - 1u, kv_head, place.y);
  }
  for (var i = lane; i < GROUP * VECTORS; i += WORKGROUP) {
    let head = kv_head * MEMBERS + min(first + i / VECTORS, MEMBERS - 1u);
    queries[i] = query_vector(head, i % VECTORS) * SCORE_SCALE;
  }
  workgroupBarrier();
  attend(lane, place, kv_head, first, split, range, turn);
}
