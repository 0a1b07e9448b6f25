//! One sort for lists that are sorted rarely: each type that the standard library's sort is compiled for
//! takes 3 KB of the wasm module.

use std::cmp::Ordering;

/// The numbers below `count` in the order of a comparison, which has to tell all of them apart.
pub fn order(count: usize, compare: &dyn Fn(usize, usize) -> Ordering) -> Vec<usize> {
    let mut order: Vec<usize> = (0..count).collect();
    order.sort_unstable_by(|&a, &b| compare(a, b));
    order
}
