// softmax_forward of rows of any length, element by element. Of f16 rows of an odd length two make a
// block, since no two workgroups may write to one word; an odd last row fills its word up with a zero.
//
//   0 input   read   Word [rows · COLUMNS / PER_WORD] from place.input on
//   1 output  write  Word [rows · COLUMNS / PER_WORD] from place.output on, overwritten
//   2 place   uniform
//
// Grid: one workgroup for ROWS rows.
@group(0) @binding(0) var<storage, read> input: array<Word>;
@group(0) @binding(1) var<storage, read_write> output: array<Word>;
@group(0) @binding(2) var<uniform> place: RowPlace;

fn load(index: u32) -> f32 {
  return element(input[place.input + index / PER_WORD], index % PER_WORD);
}

fn run(lane: u32, workgroup: vec3<u32>, workgroups: vec3<u32>) {
  let first = flat_workgroup(workgroup, workgroups) * ROWS;
  if first >= place.rows {
    return;
  }
  let begin = first * COLUMNS;
  let elements = min(ROWS, place.rows - first) * COLUMNS;
  var largest: array<f32, ROWS>;
  var scale: array<f32, ROWS>;
  for (var r = 0u; r * COLUMNS < elements; r++) {
    let row = begin + r * COLUMNS;
    var most = LOWEST;
    for (var i = lane; i < COLUMNS; i += WORKGROUP) {
      most = max(most, load(row + i));
    }
    largest[r] = reduce_max(lane, most);
    var sum = 0.0;
    for (var i = lane; i < COLUMNS; i += WORKGROUP) {
      sum += exp(load(row + i) - largest[r]);
    }
    scale[r] = inverse(reduce_sum(lane, sum));
  }
  for (var word = lane; word * PER_WORD < elements; word += WORKGROUP) {
    var values = vec2(0.0);
    for (var i = 0u; i < PER_WORD; i++) {
      let index = word * PER_WORD + i;
      if index < elements {
        let r = index / COLUMNS;
        values[i] = exp(load(begin + index) - largest[r]) * scale[r];
      }
    }
    output[place.output + begin / PER_WORD + word] = pack_word(values);
  }
}
