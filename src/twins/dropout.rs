//! Twin of `00_dropout.wgsl` (Srivastava et al., "Dropout", JMLR 2014).

use super::Real;
use crate::random::philox;

/// What decides the masks of a micro-step.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Masks {
    pub seed: [u32; 2],
    pub micro_step: u32,
}

/// Keeps the masks apart from other random numbers of the same seed.
const DROPOUT: u32 = 0x6472_6f70;

/// Rows of `columns` elements, the inputs of an adapter's module of this number. Elements are left out at
/// `rate`; the others are divided by what is kept.
pub fn dropout_forward<R: Real>(
    x: &[R],
    columns: usize,
    rate: f64,
    module: usize,
    masks: Masks,
) -> Vec<R> {
    let (blocks, threshold) = (columns.div_ceil(4), (rate * 2f64.powi(32)) as u32);
    let scale = R::from_f64(1.0 / (1.0 - rate));
    let element = |(i, &x): (usize, &R)| {
        let (row, column) = (i / columns, i % columns);
        let block = (row * blocks + column / 4) as u32;
        let words = philox([block, masks.micro_step, module as u32, DROPOUT], masks.seed);
        if words[column % 4] < threshold { R::ZERO } else { x * scale }
    };
    x.iter().enumerate().map(element).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn as_many_are_left_out_as_asked_and_the_sum_is_kept() {
        let masks = Masks { seed: [3, 0], micro_step: 7 };
        for (columns, rate) in [(100, 0.2), (77, 0.5), (3, 0.9)] {
            let count = 60_000 / columns * columns;
            let y = dropout_forward(&vec![1.0; count], columns, rate, 2, masks);
            let out = y.iter().filter(|y| **y == 0.0).count() as f64 / count as f64;
            assert!((out - rate).abs() < 0.01, "{out} instead of {rate}");
            let mean = y.iter().sum::<f64>() / count as f64;
            assert!((mean - 1.0).abs() < 0.05, "{mean}");
        }
        let x = [1.5, -2.0, 0.25];
        assert_eq!(dropout_forward(&x, 3, 0.0, 0, masks), x, "nothing is left out at 0");
    }

    #[test]
    fn masks_differ_by_seed_micro_step_and_module() {
        let of = |seed, micro_step, module| {
            let masks = Masks { seed, micro_step };
            dropout_forward(&[1.0; 64], 16, 0.5, module, masks)
        };
        let first = of([1, 2], 3, 4);
        assert_eq!(of([1, 2], 3, 4), first);
        for other in [of([2, 2], 3, 4), of([1, 3], 3, 4), of([1, 2], 4, 4), of([1, 2], 3, 5)] {
            assert_ne!(other, first);
        }
        assert_ne!(first[..16], first[16..32], "rows have masks of their own");
    }
}
