// Writes rows of ROW_HEADS heads. `gathered` says from what; the first TURNED of each row are turned by the angle of its
// position. Half a head is HALF vectors. FIRST is the vector at which the half begins that turned_back.wgsl takes for the
// first: 0, or HALF to turn the other way, forward.
@group(0) @binding(0) var<storage, read> parts: array<vec4<f32>>;
@group(0) @binding(2) var<storage, read> documents: array<u32>;
@group(0) @binding(3) var<storage, read_write> rows: array<vec4<f32>>;
@group(0) @binding(4) var<uniform> step: Step;

fn run(lane: u32, workgroup: vec3<u32>, workgroups: vec3<u32>) {
  let id = flat_id(lane, workgroup, workgroups);
  let vector = id % HALF;
  let head = id / HALF; // of all rows
  let row = head / ROW_HEADS;
  if row >= step.tokens {
    return;
  }
  let first = FIRST + vector;
  let second = HALF - FIRST + vector;
  var halves = array(gathered(head, first), gathered(head, second));
  if head % ROW_HEADS < TURNED {
    halves = turned_back(row, 4u * vector, halves[0], halves[1]);
  }
  rows[head * VECTORS + first] = halves[0];
  rows[head * VECTORS + second] = halves[1];
}
