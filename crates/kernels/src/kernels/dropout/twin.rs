//! Twins of `00_dropout.wgsl` and `lib/attention/dropout.wgsl` (Srivastava et al., "Dropout", JMLR 2014).

use super::DropoutForward;
use crate::error::Result;
use crate::kernels::shape::Constant;
use crate::random::philox;
use crate::twins::{Operands, Real, Twin, add_assign};

/// What decides the masks of a micro-step.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Masks {
    pub seed: [u32; 2],
    pub micro_step: u32,
}

/// Keeps the masks apart from other random numbers of the same seed.
const DROPOUT: u32 = 0x6472_6f70;

/// Rows of `columns` elements at the place of this number. Elements are left out at
/// `rate`; the others are divided by what is kept.
pub fn dropout_forward<R: Real>(
    x: &[R],
    columns: usize,
    rate: f64,
    place: usize,
    masks: Masks,
) -> Vec<R> {
    let (blocks, threshold) = (columns.div_ceil(4), threshold(rate));
    let scale = R::from_f64(1.0 / (1.0 - rate));
    let element = |(i, &x): (usize, &R)| {
        let (row, column) = (i / columns, i % columns);
        let block = (row * blocks + column / 4) as u32;
        let words = philox([block, masks.micro_step, place as u32, DROPOUT], masks.seed);
        if words[column % 4] < threshold { R::ZERO } else { x * scale }
    };
    x.iter().enumerate().map(element).collect()
}

/// What is left out has a random word below this.
fn threshold(rate: f64) -> u32 {
    (rate * 2f64.powi(32)) as u32
}

/// Keys that the queries of a layer leave out, in a batch of `tokens` tokens.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct KeyDropout {
    pub rate: f64,
    /// The number of the layer's place of dropout.
    pub place: usize,
    pub masks: Masks,
    pub tokens: usize,
}

impl KeyDropout {
    /// What a probability is multiplied by.
    pub fn kept<R: Real>(&self, head: usize, row: usize, key: usize) -> R {
        let block = row * (self.tokens.div_ceil(32) * 8) + key / 32 * 8 + key % 8;
        let place = self.place as u32 | ((head as u32) << 18);
        let words = philox([block as u32, self.masks.micro_step, place, DROPOUT], self.masks.seed);
        if words[key / 8 % 4] < threshold(self.rate) {
            R::ZERO
        } else {
            R::from_f64(1.0 / (1.0 - self.rate))
        }
    }
}

impl Twin for DropoutForward {
    fn run(&self, on: &mut Operands<'_>) -> Result<()> {
        let Self { columns, rate: Constant(rate), mode, residual } = *self;
        let (step, adds) = (on.step()?, on.adds(mode)?);
        let x = on.first("input", step.tokens as usize * columns)?;
        let masks = Masks { seed: step.reserved, micro_step: step.draws };
        let mut y = dropout_forward(x, columns, rate, on.range()?.col0 as usize, masks);
        if residual {
            add_assign(&mut y, on.first("residual", step.tokens as usize * columns)?);
        }
        on.write_by("output", 0, &y, adds)
    }
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

    #[test]
    fn each_head_of_a_query_leaves_out_keys_of_its_own() {
        let masks = Masks { seed: [3, 0], micro_step: 7 };
        let of = |rate, place| KeyDropout { rate, place, masks, tokens: 100 };
        for rate in [0.1, 0.5] {
            let all: Vec<f64> = (0..2 * 100 * 100)
                .map(|i| of(rate, 5).kept(i / 10_000, i / 100 % 100, i % 100))
                .collect();
            let out = all.iter().filter(|x| **x == 0.0).count() as f64 / all.len() as f64;
            assert!((out - rate).abs() < 0.01, "{out} instead of {rate}");
            assert_ne!(all[..10_000], all[10_000..], "heads");
            assert_ne!(all[..100], all[100..200], "rows");
            assert_ne!(all[..32], all[32..64], "keys");
        }
        let row = |place| (0..64).map(|key| of(0.5, place).kept(0, 3, key)).collect::<Vec<f64>>();
        assert_ne!(row(5), row(6), "layers");
    }
}
