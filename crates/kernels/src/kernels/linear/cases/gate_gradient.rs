//! Family 03: products that give the gradients of gate and up, by every tile that can.

use crate::config::Activation;
use crate::kernels::activation::twin::gated_activation_backward;
use crate::kernels::linear::cases::adapted::Terms;
use crate::kernels::linear::twin::{Product, matmul};
use crate::kernels::{
    self as k, AdaptedProduct, Form, Kernel, LinearProduct, LinearShape, Output, Spec,
};
use crate::testing::harness::{Job, Operand, Outputs, POISON, Step};
use crate::testing::lane::Lane;
use crate::testing::measure::{ROUNDING, close, forbid, of, text, wide};
use crate::testing::{Case, Outcome};
use std::rc::Rc;

pub(crate) fn cases() -> Vec<Case> {
    let case = |activation: Activation| {
        let name = format!("linear fused gate gradient {}", activation.name());
        Case::new(name, move |lane| gate_gradient(lane, activation, false))
    };
    let mut cases: Vec<Case> = Activation::ALL.map(case).into();
    let name = "linear fused gate gradient with an adapter's terms";
    cases.push(Case::new(name, |lane| gate_gradient(lane, Activation::Silu, true)));
    cases
}

/// Rows of a batch: one, and one more than those of the largest tile.
const TOKENS: [usize; 2] = [1, 129];
/// Most rows that a shape is for.
const MOST: usize = 192;

/// Widths end within a tile, and K within a step or after several whole ones.
async fn gate_gradient(lane: Rc<Lane>, activation: Activation, adapted: bool) -> Outcome {
    for (width, k) in [(4, 20), (132, 96)] {
        let shape = LinearShape::new(Form::Matmul, width, k, MOST);
        let low = adapted.then(|| Terms::new(&lane, &shape));
        let kernels = kernels(&lane, &shape, activation, low.as_ref())?;
        for tokens in TOKENS {
            let (a, b) = (lane.normal(tokens * k), lane.normal(k * width));
            let gate_up = lane.normal(tokens * 2 * width);
            let size = Product { m: tokens, n: width, k };
            let mut slope = matmul(size, &wide(&a), &wide(&b), None);
            let terms = low.as_ref().map(|low| low.add(&lane, tokens, &mut slope));
            let (gradient, activated) =
                gated_activation_backward(activation, &wide(&gate_up), &slope, width);
            let mut operands = vec![
                Operand::floats(&a),
                Operand::floats(&b),
                room(2 * width),
                Operand::uniform(&Step::of(tokens)),
                // The batch ends inside the range.
                Operand::range(0, tokens + 1, 0, width),
                Operand::floats(&gate_up),
                room(width),
            ];
            operands.extend(terms.into_iter().flatten());
            let expected = [("gradients of gate and up", gradient), ("activation", activated)];
            let job = |kernel: &Kernel| Job::new(kernel, tokens, operands.clone());
            let jobs: Vec<Job> = kernels.iter().map(job).collect();
            for (job, got) in jobs.iter().zip(&lane.run(&jobs).await.map_err(text)?) {
                check(got, tokens, &expected).map_err(of(&job.kernel))?;
            }
        }
    }
    Ok(lane.summary())
}

/// A product in every tile that fits.
fn kernels(
    lane: &Lane,
    shape: &LinearShape,
    activation: Activation,
    low: Option<&Terms>,
) -> Result<Vec<Kernel>, String> {
    let made = lane.kernels(|caps| {
        let tiles = k::linear_tiles(caps, shape).into_iter();
        let fit = tiles.filter(|&tile| k::tile_gives_gate_gradient(shape, tile));
        fit.map(|tile| {
            let output = Output::GateGradient(activation);
            let product = LinearProduct { shape: *shape, output, splits: 1, tile: Some(tile) };
            match low {
                Some(Terms { low, .. }) => AdaptedProduct { product, low: *low }.kernel(caps),
                None => product.kernel(caps),
            }
        })
        .collect()
    });
    let made = made.map_err(text)?;
    if made.is_empty() {
        return Err(format!("no tile of the table gives a gate's gradient behind {shape:?}"));
    }
    Ok(made)
}

/// An output that nobody has written, with room for rows that nobody may write.
fn room(columns: usize) -> Operand {
    Operand::poison(MOST * columns)
}

/// Holds what a kernel leaves in each output against what is expected there.
fn check(got: &Outputs, tokens: usize, expected: &[(&str, Vec<f64>)]) -> Result<(), String> {
    for (index, (name, expected)) in expected.iter().enumerate() {
        let what = format!("{name} of {tokens} tokens");
        let past = || got.words(index)[expected.len()..].iter().any(|word| *word != POISON);
        let message = || format!("{what}: rows past the last one were written");
        forbid(("past", expected.len()), past, message)?;
        close(&what, &got.floats(index)[..expected.len()], expected, ROUNDING)?;
    }
    Ok(())
}
