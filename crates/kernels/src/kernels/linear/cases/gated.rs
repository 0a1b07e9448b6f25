//! Family 03: products with the matrix of gate and up that give the gate's result, by every tile that can.

use super::run::as_it_lies;
use crate::caps::Capabilities;
use crate::config::Activation;
use crate::kernels::activation::twin::gated_activation_forward;
use crate::kernels::attention::cases::matrix_forward::HALF;
use crate::kernels::linear::twin::{Product, matmul_t};
use crate::kernels::{
    self as k, Element, Form, Kernel, LinearProduct, LinearShape, Output, Spec, WeightFormat,
};
use crate::testing::harness::{Job, Operand, POISON, Step, in_halves};
use crate::testing::lane::Lane;
use crate::testing::measure::{ROUNDING, close, forbid, of, text, wide};
use crate::testing::{Case, Outcome};
use half::f16;
use std::rc::Rc;

pub(crate) fn cases() -> Vec<Case> {
    let case = |activation: Activation| {
        let name = format!("linear fused gate {} by matrices", activation.name());
        Case::new(name, move |lane| gated(lane, activation))
    };
    Activation::ALL.map(case).into()
}

/// Rows of a batch: one, and one more than those of the largest tile.
const TOKENS: [usize; 2] = [1, 129];
/// Most rows that a shape is for.
const MOST: usize = 192;
/// Columns of gate and up: two of the widest tiles.
const N: usize = 256;

/// K is within a step, or ends within one after several.
async fn gated(lane: Rc<Lane>, activation: Activation) -> Outcome {
    let rounded =
        |x: Vec<f32>| -> Vec<f32> { x.into_iter().map(|x| f16::from_f32(x).to_f32()).collect() };
    for (depth, b) in [(32, WeightFormat::F16), (160, WeightFormat::F16), (160, WeightFormat::Int4)]
    {
        let plain = LinearShape::new(Form::MatmulT, N, depth, MOST);
        let (a, c) = (Element::F16, Element::F16);
        let shape = LinearShape { c_stride: N / 2, a, b, c, half: true, ..plain };
        let make = |caps: &Capabilities| kernels(caps, &shape, activation);
        for kernel in &lane.kernels_by_matrices(make).map_err(text)? {
            for tokens in TOKENS {
                let rows = rounded(lane.normal(tokens * depth));
                let (matrix, words) = as_it_lies(b, lane.normal(N * depth));
                let size = Product { m: tokens, n: N, k: depth };
                let sums = matmul_t(size, &wide(&rows), &wide(&rounded(matrix)), None);
                let expected = gated_activation_forward(activation, &sums, N / 2);
                let operands = vec![
                    Operand::words(&in_halves(&rows)),
                    Operand::words(&words),
                    Operand::poison(MOST * N / 4),
                    Operand::uniform(&Step::of(tokens)),
                    // The batch ends inside the range.
                    Operand::range(0, tokens + 1, 0, N),
                ];
                let job = Job::new(kernel, tokens, operands);
                let got = lane.run(std::slice::from_ref(&job)).await.map_err(text)?.remove(0);
                let what = format!("gate of {tokens} tokens");
                let used = expected.len() / 2;
                let past = || got.words(0)[used..].iter().any(|word| *word != POISON);
                let message = || format!("{what}: rows past the last one were written");
                forbid(("past", used), past, message).map_err(of(&job.kernel))?;
                let results = &got.halves(0)[..expected.len()];
                close(&what, results, &expected, ROUNDING + HALF).map_err(of(&job.kernel))?;
            }
        }
    }
    Ok(lane.summary())
}

/// A product in every tile that can.
fn kernels(
    caps: &Capabilities,
    shape: &LinearShape,
    activation: Activation,
) -> crate::error::Result<Vec<Kernel>> {
    let tiles = k::linear_tiles(caps, shape).into_iter();
    let product = |tile| {
        let output = Output::Gated(activation);
        LinearProduct { shape: *shape, output, splits: 1, tile: Some(tile) }.kernel(caps)
    };
    tiles.filter(|&tile| k::tile_gates(shape, tile)).map(product).collect()
}
