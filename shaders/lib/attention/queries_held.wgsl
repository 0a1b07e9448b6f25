// A subgroup holds the matrices of its queries.

fn take_queries(group: u32, queries: ptr<function, multiply_keysHeld>) {
  hold_multiply_keys(group, queries);
}

fn multiply(group: u32, queries: ptr<function, multiply_keysHeld>, products: ptr<function, array<array<Sums, BK / MATRIX_N>, LANES / MATRIX_M>>) {
  multiply_keys(queries, 0u, products);
}
