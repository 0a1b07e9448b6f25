// Matrices of queries are loaded from workgroup memory for each tile of keys.
alias multiply_keysHeld = u32;

fn take_queries(group: u32, queries: ptr<function, multiply_keysHeld>) {
}

fn multiply(group: u32, queries: ptr<function, multiply_keysHeld>, products: ptr<function, array<array<Sums, BK / MATRIX_N>, LANES / MATRIX_M>>) {
  multiply_keys(group, 0u, products);
}
