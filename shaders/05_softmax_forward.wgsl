// softmax_forward: output[r, :] = exp(input[r, :] − largest) / Σ exp(input[r, :] − largest), in f32, of rows
// that are whole vectors. Three passes over a row: its largest element, the sum, the result. A row of
// −1e30 alone is uniform, a row of −∞ alone zeros.
//
//   0 input   read   Quad [rows, QUADS] from place.input on
//   1 output  write  Quad [rows, QUADS] from place.output on, overwritten
//   2 place   uniform
//
// Grid: one workgroup per row.
@group(0) @binding(0) var<storage, read> input: array<Quad>;
@group(0) @binding(1) var<storage, read_write> output: array<Quad>;
@group(0) @binding(2) var<uniform> place: RowPlace;

fn run(lane: u32, workgroup: vec3<u32>, workgroups: vec3<u32>) {
  let row = flat_workgroup(workgroup, workgroups);
  if row >= place.rows {
    return;
  }
  let begin = place.input + row * QUADS;
  var most = vec4(LOWEST);
  for (var i = lane; i < QUADS; i += WORKGROUP) {
    most = max(most, unpack_quad(input[begin + i]));
  }
  let largest = reduce_max(lane, max(max(most.x, most.y), max(most.z, most.w)));
  var sums = vec4(0.0);
  for (var i = lane; i < QUADS; i += WORKGROUP) {
    sums += exp(unpack_quad(input[begin + i]) - largest);
  }
  let scale = inverse(reduce_sum(lane, (sums.x + sums.y) + (sums.z + sums.w)));
  for (var i = lane; i < QUADS; i += WORKGROUP) {
    let quad = exp(unpack_quad(input[begin + i]) - largest) * scale;
    output[place.output + row * QUADS + i] = pack_quad(quad);
  }
}
