/** A matrix, row by row, with rows and columns exchanged. `columns` are those before. */
export function transpose(values: Float32Array, columns: number): Float32Array {
  const rows = values.length / columns;
  const turned = new Float32Array(values.length);
  for (let row = 0, at = 0; row < rows; row++) {
    for (let column = 0; column < columns; column++) {
      turned[column * rows + row] = values[at++] as number;
    }
  }
  return turned;
}
