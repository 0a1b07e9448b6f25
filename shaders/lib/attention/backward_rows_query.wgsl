fn store_d_query(item: u32, row: u32, head: u32, v: u32, x: vec4<f32>) {
  gradient[row * (STRIDE / 4u) + head * (HEAD_DIM / 4u) + v] = x;
}
