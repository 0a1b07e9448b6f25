// Queries, keys and values as a kernel by matrices reads them: four elements in f32 or f16, and as a tile's cells.
#import lib/matrix

#if QKV_F16
alias QkvQuad = vec2<u32>;
#else
alias QkvQuad = vec4<f32>;
#endif

fn qkv_cells(x: QkvQuad) -> Cells {
#if QKV_F16
  return cells_of_f16(x);
#else
  return cells_of(x);
#endif
}
