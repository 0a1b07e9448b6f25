//! Families 00, 04, 06 and 09: helpers, RoPE, activations.

use super::harness::{Job, Operand, Outputs, Step};
use super::lane::Lane;
use super::measure::{ROUNDING, close, directional, dot, each_close, narrow, of, same, text, wide};
use super::{Case, Outcome};
use crate::arch::Rope;
use crate::config::Activation;
use crate::kernels::{self as k, ActivationWidth, Kernel, Parts, RopeShape, WriteMode};
use crate::random::{fill_weights, split};
use crate::session::step::Initialize;
use crate::twins::activation::{
    activation_backward, activation_forward, gated_activation_backward, gated_activation_forward,
};
use crate::twins::attention::AttentionShape;
use crate::twins::checksum::checksum_forward;
use crate::twins::dropout::{Masks, dropout_forward};
use crate::twins::linear::scale_forward;
use crate::twins::rope::{rope_backward, rope_forward, rope_table};
use std::rc::Rc;

pub(super) fn cases() -> Vec<Case> {
    let mut cases = vec![
        Case::new("initialize", initialize),
        Case::new("zero", zero),
        Case::new("copy_row", copy_row),
        Case::new("scale", scale),
        Case::new("dropout", |lane| dropout(lane, false)),
        Case::new("dropout and a sum", |lane| dropout(lane, true)),
        Case::new("checksum", checksum),
        Case::new("rope", rope),
    ];
    cases.extend(Activation::ALL.map(|activation| {
        Case::new(format!("gated_activation {}", activation.name()), move |lane| {
            gated_activation(lane, activation)
        })
    }));
    cases.extend(Activation::ALL.map(|activation| {
        Case::new(format!("activation {}", activation.name()), move |lane| {
            plain_activation(lane, activation)
        })
    }));
    cases
}

fn jobs(kernels: &[Kernel], rows: usize, operands: &[Operand]) -> Vec<Job> {
    kernels.iter().map(|kernel| Job::new(kernel, rows, operands.to_vec())).collect()
}

/// The host's bits, in a run inside a shard; what lies around it stays.
async fn initialize(lane: Rc<Lane>) -> Outcome {
    let (seed, stream, index, first) = (lane.seed, 5, 1000, 3);
    for (count, std) in [(1, 0.02), (257, 1.0), (5000, 0.3)] {
        let made = lane.variants(|caps| k::initialize(caps, count)).map_err(text)?;
        let before = lane.normal(first + count + 2);
        let mut expected = before.clone();
        fill_weights(seed, stream, index, std, &mut expected[first..first + count]);
        let operands = [
            Operand::floats(&before),
            Operand::uniform(&Initialize::new(seed, std)),
            Operand::uniform(&[first as u32, count as u32, index, stream]),
        ];
        let jobs = jobs(&made, 1, &operands);
        for (job, got) in jobs.iter().zip(lane.run(&jobs).await.map_err(text)?) {
            let expected = Operand::floats(&expected);
            same("weights", got.words(0), expected.contents()).map_err(of(&job.kernel))?;
        }
    }
    Ok(lane.summary())
}

async fn zero(lane: Rc<Lane>) -> Outcome {
    for count in [1, 257, 20_000] {
        let made = lane.variants(|caps| k::zero(caps, count)).map_err(text)?;
        for accumulate in [0, 1] {
            let before = lane.normal(count);
            let step = Step { accumulate, ..Step::of(1) };
            let jobs = jobs(&made, 1, &[Operand::floats(&before), Operand::uniform(&step)]);
            let expected: Vec<u32> =
                before.iter().map(|x| if accumulate == 0 { 0 } else { x.to_bits() }).collect();
            for (job, got) in jobs.iter().zip(lane.run(&jobs).await.map_err(text)?) {
                same("data", got.words(0), &expected).map_err(of(&job.kernel))?;
            }
        }
    }
    Ok(lane.summary())
}

async fn copy_row(lane: Rc<Lane>) -> Outcome {
    for hidden in [1, 300] {
        let made = lane.variants(|caps| k::copy_row(caps, hidden)).map_err(text)?;
        for rows in [1, 7] {
            let input = lane.normal(9 * hidden);
            let operands = [
                Operand::floats(&input),
                Operand::poison(hidden),
                Operand::uniform(&Step::of(rows)),
            ];
            let expected = Operand::floats(&input[(rows - 1) * hidden..rows * hidden]);
            let jobs = jobs(&made, rows, &operands);
            for (job, got) in jobs.iter().zip(lane.run(&jobs).await.map_err(text)?) {
                same("row", got.words(0), expected.contents()).map_err(of(&job.kernel))?;
            }
        }
    }
    Ok(lane.summary())
}

async fn checksum(lane: Rc<Lane>) -> Outcome {
    for count in [1, 5000, 20_001] {
        let made = lane.variants(|caps| k::checksum(caps, count)).map_err(text)?;
        let words = Operand::floats(&lane.normal(count));
        let expected = checksum_forward(words.contents(), k::CHECKSUM_LANES);
        let jobs = jobs(&made, 1, &[words, Operand::poison(k::CHECKSUM_LANES)]);
        for (job, got) in jobs.iter().zip(lane.run(&jobs).await.map_err(text)?) {
            same("sums", got.words(0), &expected).map_err(of(&job.kernel))?;
        }
    }
    Ok(lane.summary())
}

/// Rows of the batch alone: what lies behind them stays.
async fn scale(lane: Rc<Lane>) -> Outcome {
    for columns in [1, 16, 77] {
        for factor in [2.0, 0.1] {
            let made = lane.variants(|caps| k::scale(caps, columns, factor)).map_err(text)?;
            for rows in [1, 9] {
                let before = lane.normal(9 * columns);
                let (mut expected, scaled) = (before.clone(), rows * columns);
                scale_forward(&mut expected[..scaled], factor as f32);
                let step = Operand::uniform(&Step::of(rows));
                let jobs = jobs(&made, rows, &[Operand::floats(&before), step]);
                for (job, got) in jobs.iter().zip(lane.run(&jobs).await.map_err(text)?) {
                    let expected = Operand::floats(&expected);
                    same("rows", got.words(0), expected.contents()).map_err(of(&job.kernel))?;
                }
            }
        }
    }
    Ok(lane.summary())
}

/// The twin's bits where it overwrites. Rows behind the batch stay as they were.
async fn dropout(lane: Rc<Lane>, residual: bool) -> Outcome {
    let (seed, micro_step, place) = (split(lane.seed), 77, 3);
    let masks = Masks { seed, micro_step };
    let range = Operand::uniform(&[0u32, 9, place, 0]);
    for columns in [1, 16, 77] {
        let modes = [(0.2, WriteMode::Overwrite), (0.5, WriteMode::Add)];
        for &(rate, mode) in if residual { &modes[..1] } else { &modes } {
            let make = |caps: &_| k::dropout(caps, columns, rate, mode, residual);
            let made = lane.variants(make).map_err(text)?;
            for rows in [1, 9] {
                let x = lane.normal(9 * columns);
                let (step, count) = (Step::of(rows), rows * columns);
                let step = Operand::uniform(&Step { draws: micro_step, reserved: seed, ..step });
                let mut y = dropout_forward(&x[..count], columns, rate, place as usize, masks);
                let added = lane.normal(9 * columns);
                if residual {
                    y.iter_mut().zip(&added).for_each(|(y, x)| *y += x);
                }
                let mut before = Operand::poison(9 * columns);
                if mode == WriteMode::Add {
                    before = Operand::floats(&lane.normal(9 * columns));
                }
                let mut operands = vec![Operand::floats(&x), before.clone(), step, range.clone()];
                operands.extend(residual.then(|| Operand::floats(&added)));
                let jobs = jobs(&made, rows, &operands);
                for (job, got) in jobs.iter().zip(lane.run(&jobs).await.map_err(text)?) {
                    let (of_batch, behind) = got.words(0).split_at(count);
                    same("rows behind", behind, &before.contents()[count..])
                        .map_err(of(&job.kernel))?;
                    let written = match mode {
                        WriteMode::Add => {
                            let sum = |(y, b): (&f32, &u32)| {
                                f64::from(*y) + f64::from(f32::from_bits(*b))
                            };
                            let sums: Vec<_> = y.iter().zip(before.contents()).map(sum).collect();
                            let got: Vec<_> = of_batch.iter().map(|x| f32::from_bits(*x)).collect();
                            close("sums", &got, &sums, ROUNDING)
                        }
                        _ => same("rows", of_batch, Operand::floats(&y).contents()),
                    };
                    written.map_err(of(&job.kernel))?;
                }
            }
        }
    }
    Ok(lane.summary())
}

async fn rope(lane: Rc<Lane>) -> Outcome {
    const THETA: f64 = 10_000.0;
    for (n_heads, n_kv_heads, head_dim, dims) in
        [(1, 1, 4, 4), (6, 2, 12, 6), (6, 2, 12, 4), (3, 1, 80, 80)]
    {
        for (tokens, position) in [(1, 0), (19, 0), (19, 23)] {
            let shape = AttentionShape::new(n_heads, n_kv_heads, head_dim, tokens);
            let (heads, stride) = (n_heads + n_kv_heads, shape.qkv_width());
            let turned = RopeShape { heads, head_dim, dims, stride };
            let documents = if position > 0 { vec![0; tokens] } else { lane.documents(tokens) };
            let qkv = lane.normal(tokens * shape.qkv_width());
            let angles = Rope::plain(dims, THETA);
            let table: Vec<f32> =
                rope_table(64, &angles).iter().flat_map(|pair| narrow(pair)).collect();
            let step = Step { position: position as u32, ..Step::of(tokens) };
            let mut operands = vec![
                Operand::floats(&qkv),
                Operand::floats(&table),
                Operand::words(&documents),
                Operand::uniform(&step),
            ];
            for forward in [true, false] {
                let made = lane.variants(|caps| k::rope(caps, turned, forward)).map_err(text)?;
                let mut expected = wide(&qkv);
                let rotate = if forward { rope_forward } else { rope_backward };
                rotate(shape, &mut expected, &documents, position, &angles);
                let jobs = jobs(&made, tokens, &operands);
                for (job, got) in jobs.iter().zip(lane.run(&jobs).await.map_err(text)?) {
                    close("qkv", &got.floats(0), &expected, ROUNDING).map_err(of(&job.kernel))?;
                }
            }
            if !k::rope_has_halves(turned) {
                continue;
            }
            operands.insert(3, Operand::poison(qkv.len() / 2));
            for forward in [true, false] {
                let mut expected = wide(&qkv);
                let rotate = if forward { rope_forward } else { rope_backward };
                rotate(shape, &mut expected, &documents, position, &angles);
                // A sum that cancels is rounded in f32 before it is in f16; below 2^-14 f16 has steps of one size.
                let terms: Vec<f64> = expected.iter().map(|x| x.abs().max(0.01)).collect();
                let allowed = 1.0 / 2048.0 + ROUNDING;
                let made =
                    lane.variants(|caps| k::rope_halves(caps, turned, forward)).map_err(text)?;
                let jobs = jobs(&made, tokens, &operands);
                for (job, got) in jobs.iter().zip(lane.run(&jobs).await.map_err(text)?) {
                    each_close("rotated", &got.halves(0), &expected, &terms, allowed)
                        .map_err(of(&job.kernel))?;
                }
            }
        }
    }
    Ok(lane.summary())
}

/// Relative error that rounding explains in one element: the drivers' exp and tanh are good to a
/// few units in the last place.
const ACTIVATION: f64 = 4e-6;
/// Half a step of f16, and that.
const HALF: f64 = 1.0 / 2048.0 + ACTIVATION;

/// What rounding is relative to in a gated output and in the gradients, since in the tail of an activation
/// 1 + erf or 1 + tanh cancels.
fn gated_terms(gate_up: &[f64], d_output: &[f64], width: usize) -> [Vec<f64>; 2] {
    let products = gate_up
        .chunks_exact(2 * width)
        .flat_map(|row| (0..width).map(|i| row[i] * row[width + i]))
        .collect();
    let slopes = gate_up
        .chunks_exact(2 * width)
        .zip(d_output.chunks_exact(width))
        .flat_map(|(row, d)| {
            let (gate, up) = row.split_at(width);
            up.iter().chain(gate).zip(d.iter().cycle()).map(|(x, d)| x * d)
        })
        .collect();
    [products, slopes]
}

async fn gated_activation(lane: Rc<Lane>, activation: Activation) -> Outcome {
    for (rows, width, half, count) in [
        (1, 1, false, 1),
        (13, 67, false, 1),
        (13, 68, false, 1),
        (13, 68, true, 1),
        (1, 4, false, 2),
        (13, 68, false, 3),
        (13, 132, true, 8),
    ] {
        let shape = ActivationWidth { width, activation, gated: true, half, parts: Parts::WHOLE };
        gated_forward(&lane, shape, (rows, count)).await?;
        gated_backward(&lane, shape, (rows, count)).await?;
    }
    Ok(lane.summary())
}

/// What rounding is relative to in results.
fn gated_bounds(shape: ActivationWidth, [gate_up, d_output]: [&[f64]; 2]) -> [Vec<f64>; 2] {
    // Below that f16 has steps of one size.
    let least = if shape.half { 1.0 / 16384.0 } else { 0.0 };
    gated_terms(gate_up, d_output, shape.width)
        .map(|terms| terms.into_iter().map(|term| term.abs().max(least)).collect())
}

impl ActivationWidth {
    /// Where a kernel leaves so many results.
    fn poison(self, elements: usize) -> Operand {
        Operand::poison(if self.half { elements / 2 } else { elements })
    }

    /// What it has left there.
    fn left(self, got: &Outputs, index: usize) -> Vec<f32> {
        if self.half { got.halves(index) } else { got.floats(index) }
    }

    /// How far results may be off.
    const fn tolerance(self) -> f64 {
        if self.half { HALF } else { ACTIVATION }
    }
}

/// What is read lies in `count` parts.
async fn gated_forward(
    lane: &Lane,
    shape: ActivationWidth,
    (rows, count): (usize, usize),
) -> Result<(), String> {
    let (read, parts, gate_up) = lane.parts(gates(lane, rows, shape.width), count);
    let shape = ActivationWidth { parts, ..shape };
    let exact = wide(&gate_up);
    let output = gated_activation_forward(shape.activation, &exact, shape.width);
    let [products, _] = gated_bounds(shape, [&exact, &vec![0.0; output.len()]]);
    let made = lane.variants(|caps| k::activation(caps, shape)).map_err(text)?;
    let step = Operand::uniform(&Step::of(rows));
    let mut operands = vec![Operand::floats(&read), shape.poison(output.len()), step];
    operands.extend((count > 1).then(|| Operand::poison(gate_up.len())));
    let forward = jobs(&made, rows, &operands);
    for (job, got) in forward.iter().zip(lane.run(&forward).await.map_err(text)?) {
        let named = of(&job.kernel);
        each_close("output", &shape.left(&got, 0), &output, &products, shape.tolerance())
            .map_err(&named)?;
        if count > 1 {
            close("gate | up", &got.floats(1), &exact, ROUNDING).map_err(named)?;
        }
    }
    Ok(())
}

/// The gradient of the output lies in `count` parts.
async fn gated_backward(
    lane: &Lane,
    shape: ActivationWidth,
    (rows, count): (usize, usize),
) -> Result<(), String> {
    let ActivationWidth { width, activation, .. } = shape;
    let gate_up = gates(lane, rows, width);
    let (slopes, parts, d_output) = lane.parts(lane.normal(rows * width), count);
    let shape = ActivationWidth { parts, ..shape };
    let (exact, d_output) = (wide(&gate_up), wide(&d_output));
    let [products, terms] = gated_bounds(shape, [&exact, &d_output]);
    let made = lane.variants(|caps| k::activation_backward(caps, shape)).map_err(text)?;
    let (gradient, output) = gated_activation_backward(activation, &exact, &d_output, width);
    let backward = [
        Operand::floats(&gate_up),
        Operand::floats(&slopes),
        shape.poison(gate_up.len()),
        shape.poison(output.len()),
        Operand::uniform(&Step::of(rows)),
    ];
    let backward = jobs(&made, rows, &backward);
    for (job, got) in backward.iter().zip(lane.run(&backward).await.map_err(text)?) {
        let (named, tolerance) = (of(&job.kernel), shape.tolerance());
        each_close("d_gate_up", &shape.left(&got, 0), &gradient, &terms, tolerance)
            .map_err(&named)?;
        each_close("output", &shape.left(&got, 1), &output, &products, tolerance)
            .map_err(&named)?;
        if shape.half {
            continue;
        }
        let loss = |x: &[f64]| dot(&gated_activation_forward(activation, x, width), &d_output);
        directional("d_gate_up", &got.floats(0), &exact, &lane.normal(exact.len()), loss)
            .map_err(&named)?;
    }
    Ok(())
}

/// Without a gate: an element of each size, and the same of its gradient.
async fn plain_activation(lane: Rc<Lane>, activation: Activation) -> Outcome {
    for (rows, width) in [(1, 1), (13, 134)] {
        let (gated, half, parts) = (false, false, Parts::WHOLE);
        let shape = ActivationWidth { width, activation, gated, half, parts };
        let (x, d_output) = (gates(&lane, rows, width.div_ceil(2)), lane.normal(rows * width));
        let x = &x[..rows * width];
        let (exact, d_exact) = (wide(x), wide(&d_output));
        let (gradient, output) = activation_backward(activation, &exact, &d_exact);
        // As above: rounding is relative to these.
        let slopes: Vec<f64> =
            exact.iter().zip(&d_exact).map(|(x, d)| d * x.abs().max(1.0)).collect();
        let step = Operand::uniform(&Step::of(rows));
        let (input, poison) = (Operand::floats(x), Operand::poison(rows * width));

        let made = lane.variants(|caps| k::activation(caps, shape)).map_err(text)?;
        let forward = jobs(&made, rows, &[input.clone(), poison.clone(), step.clone()]);
        for (job, got) in forward.iter().zip(lane.run(&forward).await.map_err(text)?) {
            each_close("output", &got.floats(0), &output, &exact, ACTIVATION)
                .map_err(of(&job.kernel))?;
        }

        let made = lane.variants(|caps| k::activation_backward(caps, shape)).map_err(text)?;
        let operands = [input, Operand::floats(&d_output), poison.clone(), poison, step];
        let backward = jobs(&made, rows, &operands);
        for (job, got) in backward.iter().zip(lane.run(&backward).await.map_err(text)?) {
            let named = of(&job.kernel);
            each_close("d_input", &got.floats(0), &gradient, &slopes, ACTIVATION)
                .map_err(&named)?;
            each_close("output", &got.floats(1), &output, &exact, ACTIVATION).map_err(&named)?;
            let loss = |x: &[f64]| dot(&activation_forward(activation, x), &d_exact);
            directional("d_input", &got.floats(0), &exact, &lane.normal(exact.len()), loss)
                .map_err(&named)?;
        }
    }
    Ok(lane.summary())
}

/// Gates of every size, the far tails among them: nothing may overflow there.
fn gates(lane: &Lane, rows: usize, width: usize) -> Vec<f32> {
    let mut gate_up = lane.normal(rows * 2 * width);
    if width > 8 {
        for (row, tails) in
            gate_up.chunks_exact_mut(2 * width).zip([1.0f32, 3.0, -1.0].iter().cycle())
        {
            row[..8].copy_from_slice(
                &[0.0, 5.5, -5.5, 12.0, -12.0, 95.0, -95.0, 0.46].map(|x| x * tails),
            );
            row[width + 5..width + 7].fill(0.01);
        }
    }
    gate_up
}
