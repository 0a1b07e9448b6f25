// Where a tensor's rows lie in its buffer and where the result goes, and how many there are: run-time
// values, so that other lengths and offsets compile nothing (`kernels/softmax.rs`).
struct RowPlace {
  rows: u32,
  input: u32,  // index of the first row's first unit of storage
  output: u32,
  reserved: u32,
}
