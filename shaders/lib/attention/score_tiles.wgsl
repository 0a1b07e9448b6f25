// Products of queries' rows with keys' rows, KINDS of them one after the other, for a tile of 128 queries and half of its
// 128 keys. A kernel says with `fetch_a` and `fetch_b` what it multiplies, and with `finish` what becomes of the products.
// Grid: x over heads and halves of a tile of 128 keys, y over tiles, whose strips `documents` has from STRIP_OF_TILE on.

// Where a workgroup's products lie, and an invocation's among them.
struct Tile {
  head: u32,
  m0: u32,        // first query
  n0: u32,        // first key
  last_row: u32,  // of the strip's queries
  lane_m: u32,
  lane_n: u32,
}

// The keys that each of an invocation's queries sees, as `seen_keys` gives them.
alias Seen = array<vec2<u32>, TM>;

fn multiply_tile(lane: u32, workgroup: vec3<u32>) {
  let strip = documents[STRIP_OF_TILE + workgroup.y];
  let m0 = strip * BM;
  if m0 >= step.tokens {
    return;
  }
  let n0 = (workgroup.y - documents[FIRST_TILE + strip]) * STRIP + workgroup.x % 2u * BN;
  let last_row = min(m0 + BM, step.tokens) - 1u;
  // A window may leave tiles out that nothing reads either.
  if n0 > last_row || n0 < first_key(0u, m0) / STRIP * STRIP {
    return;
  }
  let head = workgroup.x / 2u;
  let kv_head = head / (HEADS / KV_HEADS);
  let mine = lanes(lane);
  let line = lane / VECTORS_K;
  let step_v = lane % VECTORS_K;

  var seen = Seen();
  for (var i = 0u; i < TM; i++) {
    let row = row_of(m0, i, mine.x);
    seen[i] = select(vec2(0u), seen_keys(0u, min(row, last_row)), row <= last_row);
  }
  for (var kind = 0u; kind < KINDS; kind++) {
    var next_a = array<vec4<f32>, LOADS_A>();
    var next_b = array<vec4<f32>, LOADS_B>();
    for (var i = 0u; i < LOADS_A; i++) {
      next_a[i] = fetch_a(kind, min(m0 + line + i * (WORKGROUP / VECTORS_K), last_row), head, step_v);
    }
    for (var i = 0u; i < LOADS_B; i++) {
      next_b[i] = fetch_b(kind, min(n0 + line + i * (WORKGROUP / VECTORS_K), last_row), kv_head, step_v);
    }
    var sums = Sums();
    for (var v = VECTORS_K; v <= VECTORS; v += VECTORS_K) {
      for (var i = 0u; i < LOADS_A; i++) {
        put_a_rows(lane + i * WORKGROUP, next_a[i]);
      }
      for (var i = 0u; i < LOADS_B; i++) {
        put_b_rows(lane + i * WORKGROUP, next_b[i]);
      }
      workgroupBarrier();
      if v < VECTORS {
        for (var i = 0u; i < LOADS_A; i++) {
          next_a[i] = fetch_a(kind, min(m0 + line + i * (WORKGROUP / VECTORS_K), last_row), head, v + step_v);
        }
        for (var i = 0u; i < LOADS_B; i++) {
          next_b[i] = fetch_b(kind, min(n0 + line + i * (WORKGROUP / VECTORS_K), last_row), kv_head, v + step_v);
        }
      }
      multiply(&sums, mine.x, mine.y);
      workgroupBarrier();
    }
    finish(kind, Tile(head, m0, n0, last_row, mine.x, mine.y), &seen, &sums);
  }
}
