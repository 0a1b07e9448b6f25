// uses: attention/backward_rows, attention/backward_rows_query, attention/backward_rows_key_value, step, range, attention/mask_rows, attention/mask_rows_back, attention/products
// attention_backward_sums: of a chunk of heads d_query = dS·K, d_key = dSᵀ·Q and d_value = Pᵀ·dO from what
// 10_attention_backward_scores.wgsl has left.
//
//   0 … 6            lib/attention/backward_rows.wgsl
//   7 probabilities  read     f32 [heads of the chunk, SCRATCH_ROWS, SCRATCH_KEYS]
//   8 d_scores       read     as probabilities, in units of SCALE
//   9 range          uniform  the first head of the chunk is col0
//
// Gradients of keys and values are added up over the group's heads. Grid: y over tiles of BM rows, x over columns of
// BN: of keys and values in turn, whose tiles have most to do, and then of queries.
@group(0) @binding(7) var<storage, read> probabilities: array<vec4<f32>>;
@group(0) @binding(8) var<storage, read> d_scores: array<vec4<f32>>;
@group(0) @binding(9) var<uniform> range: Range;

const OF_QUERY: u32 = 0u;
const OF_KEY: u32 = 1u;
const OF_VALUE: u32 = 2u;

fn fetch_a(kind: u32, at: u32) -> vec4<f32> {
  if kind == OF_VALUE {
    return probabilities[at];
  }
  return d_scores[at];
}

fn fetch_b(kind: u32, row: u32, head: u32, v: u32) -> vec4<f32> {
  // Weights of rows past the end are zeros.
  let known = min(row, step.tokens - 1u);
  if kind == OF_QUERY {
    return load_key(0u, known, head / MEMBERS, v);
  }
  if kind == OF_KEY {
    return load_query(0u, known, head, v);
  }
  return load_d_output(0u, known, head, v);
}

// Where an invocation's first vector of a tile of weights lies.
fn place_a(kind: u32, lane: u32, place: u32, m0: u32, k0: u32) -> u32 {
  if kind == OF_QUERY {
    return scratch_row(place, m0 + lane / VECTORS_K) + k0 / 4u + lane % VECTORS_K;
  }
  return scratch_row(place, k0 + lane / (BM / 4u)) + m0 / 4u + lane % (BM / 4u);
}

fn run(lane: u32, workgroup: vec3<u32>, workgroups: vec3<u32>) {
  let item = workgroup.x / (HEAD_DIM / BN);
  let v0 = workgroup.x % (HEAD_DIM / BN) * (BN / 4u);
  var kind = OF_QUERY;
  var place = item - KEY_VALUE_ITEMS;
  var place_end = place + 1u;
  var tile = workgroups.y - 1u - workgroup.y;
  var a_lines = WORKGROUP / VECTORS_K;
  if item < KEY_VALUE_ITEMS {
    kind = OF_KEY + item % 2u;
    place = item / 2u * MEMBERS;
    place_end = place + MEMBERS;
    tile = workgroup.y;
    a_lines = WORKGROUP / (BM / 4u);
  }
  let m0 = tile * BM;
  if m0 >= step.tokens {
    return;
  }
  let last_row = min(m0 + BM, step.tokens) - 1u;
  var k_begin = m0;
  var k_end = end_query(0u, last_row);
  if kind == OF_QUERY {
    k_begin = first_key(0u, m0) / BK * BK;
    k_end = last_row + 1u;
  }
  let owner = range.col0 + place;
  let mine = lanes(lane);
  let a_step = a_lines * (SCRATCH_KEYS / 4u);
  let b_line = lane / (BN / 4u);
  let b_v = v0 + lane % (BN / 4u);

  var next_a = array<vec4<f32>, LOADS_A>();
  var next_b = array<vec4<f32>, LOADS_B>();
  var k0 = k_begin;
  var at = place_a(kind, lane, place, m0, k0);
  for (var i = 0u; i < LOADS_A; i++) {
    next_a[i] = fetch_a(kind, at + i * a_step);
  }
  for (var i = 0u; i < LOADS_B; i++) {
    next_b[i] = fetch_b(kind, k0 + b_line + i * (WORKGROUP / (BN / 4u)), range.col0 + place, b_v);
  }
  var sums = Sums();
  while place < place_end {
    if kind == OF_QUERY {
      for (var i = 0u; i < LOADS_A; i++) {
        put_a_rows(lane + i * WORKGROUP, next_a[i]);
      }
    } else {
      for (var i = 0u; i < LOADS_A; i++) {
        put_a_columns(lane + i * WORKGROUP, next_a[i]);
      }
    }
    for (var i = 0u; i < LOADS_B; i++) {
      put_b_columns(lane + i * WORKGROUP, next_b[i]);
    }
    workgroupBarrier();
    k0 += BK;
    if k0 >= k_end {
      k0 = k_begin;
      place++;
    }
    if place < place_end {
      at = place_a(kind, lane, place, m0, k0);
      for (var i = 0u; i < LOADS_A; i++) {
        next_a[i] = fetch_a(kind, at + i * a_step);
      }
      for (var i = 0u; i < LOADS_B; i++) {
        next_b[i] = fetch_b(kind, k0 + b_line + i * (WORKGROUP / (BN / 4u)), range.col0 + place, b_v);
      }
    }
    multiply(&sums, mine.x, mine.y);
    workgroupBarrier();
  }

  for (var i = 0u; i < TM; i++) {
    let row = row_of(m0, i, mine.x);
    if row <= last_row {
      for (var j = 0u; j < SIDE; j++) {
        let v = v0 + j * LANES_N + mine.y;
        if kind == OF_QUERY {
          store_d_query(0u, row, owner, v, sums[i][j] * SCALE);
        } else if kind == OF_KEY {
          store_d_key(0u, row, owner / MEMBERS, v, sums[i][j] * SCALE);
        } else {
          store_d_value(0u, row, owner / MEMBERS, v, sums[i][j]);
        }
      }
    }
  }
}
