// softmax_forward: output[r, :] = exp(input[r, :] − largest) / Σ exp(input[r, :] − largest), in f32, of rows
// that are whole vectors. Three passes over a row: its largest element, the sum, the result. A row of
// −1e30 alone is uniform, a row of −∞ alone zeros.
//
// Grid: one workgroup per row.
//
// WORDS: rows of any length, element by element. Of f16 rows of an odd length two make a block, since no two workgroups may
// write to one word; an odd last row fills its word up with a zero.
//
// Grid: one workgroup for ROWS rows.
#import lib/flat
#import lib/quad
#import lib/reduce

// Where a tensor's rows lie in its buffer and where the result goes, and how many there are: run-time
// values, so that other lengths and offsets compile nothing (`kernels/softmax.rs`).
struct RowPlace {
  rows: u32,
  input: u32,  // index of the first row's first unit of storage
  output: u32,
  reserved: u32,
}

#binding place: RowPlace  // uniform

// Below every finite number but the very lowest; the literal of that, and of −∞, is refused by some compilers.
const LOWEST: f32 = -3.4e38;

// 1 / sum, and 0 for a row that has nothing.
fn inverse(sum: f32) -> f32 {
  return select(0.0, 1.0 / sum, sum > 0.0);
}

#if WORDS
#if F16
// Two elements to a word, the first in the low half.
alias Word = u32;
const PER_WORD: u32 = 2u;
#else
alias Word = f32;
const PER_WORD: u32 = 1u;
#endif

fn element(word: Word, index: u32) -> f32 {
#if F16
  return unpack2x16float(word)[index];
#else
  return word;
#endif
}

fn pack_word(x: vec2<f32>) -> Word {
#if F16
  return pack_pair(x);
#else
  return x.x;
#endif
}

#binding input: array<Word>   // read   Word [rows · COLUMNS / PER_WORD] from place.input on
#binding output: array<Word>  // write  Word [rows · COLUMNS / PER_WORD] from place.output on, overwritten

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
#else
#binding input: array<Quad>   // read   Quad [rows, QUADS] from place.input on
#binding output: array<Quad>  // write  Quad [rows, QUADS] from place.output on, overwritten

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
#endif
