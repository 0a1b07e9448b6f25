//! Family 03: products that compute what is behind them, in every tile that can.

use super::harness::{Job, Operand, Outputs, POISON, Step};
use super::lane::Lane;
use super::measure::{ROUNDING, close, of, text, wide};
use super::{Case, Outcome};
use crate::arch::Rope;
use crate::config::Activation;
use crate::kernels::{
    self as k, Form, Fused, Kernel, LinearPick, LinearShape, LinearTile, Output, RopeShape,
};
use crate::twins::activation::{gated_activation_backward, gated_activation_forward};
use crate::twins::attention::AttentionShape;
use crate::twins::cast;
use crate::twins::linear::{Product, matmul, matmul_t};
use crate::twins::rope::{rope_forward, rope_table};
use std::rc::Rc;

pub(super) fn cases() -> Vec<Case> {
    let gated = Activation::ALL.map(|activation| {
        let name = format!("linear fused gated {}", activation.name());
        Case::new(name, move |lane| gated(lane, activation))
    });
    let gradients = Activation::ALL.map(|activation| {
        let name = format!("linear fused gate gradient {}", activation.name());
        Case::new(name, move |lane| gate_gradient(lane, activation))
    });
    let turned = [(2, 1, 32), (3, 1, 64), (1, 1, 96), (4, 2, 128)].map(|heads| {
        let (query, key, head_dim) = heads;
        let name = format!("linear fused turned {query}/{key} heads of {head_dim}");
        Case::new(name, move |lane| turned(lane, heads))
    });
    gated.into_iter().chain(gradients).chain(turned).collect()
}

/// Rows of a batch: one, and one more than those of the largest tile.
const TOKENS: [usize; 2] = [1, 129];
/// Most rows that a shape is for.
const MOST: usize = 192;

/// A product with what is fused behind it, in every tile that fits.
fn kernels(lane: &Lane, shape: &LinearShape, fused: Fused) -> Result<Vec<Kernel>, String> {
    let made = lane.kernels(|caps| {
        let tiles = k::linear_tiles(caps, shape);
        let fit = tiles.into_iter().filter(|tile: &LinearTile| fused.fits(caps, shape, *tile));
        fit.map(|tile| {
            let pick = LinearPick { tile, splits: 1, reason: String::new() };
            Ok(k::linear_with_tile(caps, shape, Output::Fused(fused), pick)?.product)
        })
        .collect()
    });
    let made = made.map_err(text)?;
    if made.is_empty() {
        return Err(format!("no tile of the table computes {fused:?} behind {shape:?}"));
    }
    Ok(made)
}

/// An output that nobody has written, with room for rows that nobody may write.
fn room(columns: usize) -> Operand {
    Operand::poison(MOST * columns)
}

/// Operands of a product: a, b, c of rows of so many columns, step and range.
fn operands(
    [a, b]: [&[f32]; 2],
    columns: usize,
    (tokens, position): (usize, usize),
) -> Vec<Operand> {
    let step = Step { position: position as u32, ..Step::of(tokens) };
    vec![
        Operand::floats(a),
        Operand::floats(b),
        room(columns),
        Operand::uniform(&step),
        // The batch ends inside the range.
        Operand::range(0, tokens + 1, 0, columns),
    ]
}

/// Runs a kernel and holds what it leaves in each output against what is expected there.
async fn check(
    lane: &Lane,
    kernels: &[Kernel],
    tokens: usize,
    operands: &[Operand],
    expected: &[(&str, Vec<f64>)],
) -> Result<(), String> {
    let job = |kernel: &Kernel| Job::new(kernel, tokens, operands.to_vec());
    let jobs: Vec<Job> = kernels.iter().map(job).collect();
    let results = lane.run(&jobs).await.map_err(text)?;
    for (job, got) in jobs.iter().zip(&results) {
        held(got, tokens, expected).map_err(of(&job.kernel))?;
    }
    Ok(())
}

fn held(got: &Outputs, tokens: usize, expected: &[(&str, Vec<f64>)]) -> Result<(), String> {
    for (index, (name, expected)) in expected.iter().enumerate() {
        let what = format!("{name} of {tokens} tokens");
        if got.words(index)[expected.len()..].iter().any(|word| *word != POISON) {
            return Err(format!("{what}: rows past the last one were written"));
        }
        close(&what, &got.floats(index)[..expected.len()], expected, ROUNDING)?;
    }
    Ok(())
}

/// Widths end within a tile, and K within a step or behind several whole ones.
async fn gated(lane: Rc<Lane>, activation: Activation) -> Outcome {
    for (width, k) in [(4, 20), (132, 96)] {
        let n = 2 * width;
        let shape = LinearShape::new(Form::MatmulT, n, k, MOST);
        let made = kernels(&lane, &shape, Fused::Gated { activation })?;
        for tokens in TOKENS {
            let (a, b) = (lane.normal(tokens * k), lane.normal(n * k));
            let gate_up = matmul_t(Product { m: tokens, n, k }, &wide(&a), &wide(&b), None);
            let activated = gated_activation_forward(activation, &gate_up, width);
            let mut operands = operands([&a, &b], n, (tokens, 0));
            operands.push(room(width));
            let expected = [("gate and up", gate_up), ("activation", activated)];
            check(&lane, &made, tokens, &operands, &expected).await?;
        }
    }
    Ok(lane.summary())
}

async fn gate_gradient(lane: Rc<Lane>, activation: Activation) -> Outcome {
    for (width, k) in [(4, 20), (132, 96)] {
        let shape = LinearShape::new(Form::Matmul, width, k, MOST);
        let made = kernels(&lane, &shape, Fused::GateGradient { activation })?;
        for tokens in TOKENS {
            let (a, b) = (lane.normal(tokens * k), lane.normal(k * width));
            let gate_up = lane.normal(tokens * 2 * width);
            let size = Product { m: tokens, n: width, k };
            let slope = matmul(size, &wide(&a), &wide(&b), None);
            let (gradient, activated) =
                gated_activation_backward(activation, &wide(&gate_up), &slope, width);
            let mut operands = operands([&a, &b], 2 * width, (tokens, 0));
            operands.extend([Operand::floats(&gate_up), room(width)]);
            let expected = [("gradients of gate and up", gradient), ("activation", activated)];
            check(&lane, &made, tokens, &operands, &expected).await?;
        }
    }
    Ok(lane.summary())
}

/// Documents of a batch, and rows of one text behind others.
async fn turned(lane: Rc<Lane>, (query, key, head_dim): (usize, usize, usize)) -> Outcome {
    let k = 36;
    let angles = Rope::plain(head_dim, 10_000.0);
    for (tokens, position) in [(1, 0), (129, 0), (129, 5)] {
        let shape = AttentionShape::new(query, key, head_dim, tokens);
        let n = shape.qkv_width();
        let rope = RopeShape { heads: query + key, head_dim, dims: head_dim, stride: n };
        let product = LinearShape::new(Form::MatmulT, n, k, MOST);
        let made = kernels(&lane, &product, Fused::Turned(rope))?;
        let (a, b) = (lane.normal(tokens * k), lane.normal(n * k));
        let documents = if position > 0 { vec![0; tokens] } else { lane.documents(tokens) };
        let table: Vec<f32> = cast(&rope_table(MOST, &angles).concat());
        let mut expected = matmul_t(Product { m: tokens, n, k }, &wide(&a), &wide(&b), None);
        rope_forward(shape, &mut expected, &documents, position, &angles);
        let mut operands = operands([&a, &b], n, (tokens, position));
        operands.extend([Operand::floats(&table), Operand::words(&documents)]);
        check(&lane, &made, tokens, &operands, &[("heads", expected)]).await?;
    }
    Ok(lane.summary())
}
