//! Families 06 and 09: activations.

use super::twin::{
    activation_backward, activation_forward, gated_activation_backward, gated_activation_forward,
};
use super::{ActivationBackward, ActivationForward};
use crate::caps::Capabilities;
use crate::config::Activation;
use crate::kernels::{ActivationWidth, PartialSums, Spec};
use crate::testing::catalogue::Entry;
use crate::testing::harness::{Operand, Outputs, Step, jobs};
use crate::testing::lane::Lane;
use crate::testing::measure::{ROUNDING, close, directional, dot, each_close, of, text, wide};
use crate::testing::{Case, Outcome};
use std::rc::Rc;

pub(crate) fn cases() -> Vec<Case> {
    let gated = Activation::ALL.map(|activation| {
        Case::new(format!("gated_activation {}", activation.name()), move |lane| {
            gated_activation(lane, activation)
        })
    });
    let plain = Activation::ALL.map(|activation| {
        Case::new(format!("activation {}", activation.name()), move |lane| {
            plain_activation(lane, activation)
        })
    });
    gated.into_iter().chain(plain).collect()
}

pub(crate) fn examples(caps: &Capabilities) -> Vec<Entry> {
    let mut entries = vec![];
    for (width, activation) in
        [1, 61, 768].into_iter().flat_map(|width| Activation::ALL.map(|of| (width, of)))
    {
        let plain = ActivationWidth {
            width,
            activation,
            gated: false,
            half: false,
            sums: PartialSums::WHOLE,
        };
        let gated = ActivationWidth { gated: true, ..plain };
        let half = ActivationWidth { half: true, ..gated };
        let sums = ActivationWidth { sums: PartialSums { count: 3, apart: 4096 }, ..half };
        let all =
            if gated.by_quads() { vec![plain, gated, half, sums] } else { vec![plain, gated] };
        for shape in all {
            entries.push((format!("activation of {width}"), ActivationForward(shape).kernel(caps)));
            let backward = ActivationBackward(shape).kernel(caps);
            entries.push((format!("activation backward of {width}"), backward));
        }
    }
    entries
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
        let shape =
            ActivationWidth { width, activation, gated: true, half, sums: PartialSums::WHOLE };
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
    /// Where a kernel leaves `elements` results.
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

/// What is read is in `count` parts.
async fn gated_forward(
    lane: &Lane,
    shape: ActivationWidth,
    (rows, count): (usize, usize),
) -> Result<(), String> {
    let (read, sums, gate_up) = lane.parts(gates(lane, rows, shape.width), count);
    let shape = ActivationWidth { sums, ..shape };
    let exact = wide(&gate_up);
    let output = gated_activation_forward(shape.activation, &exact, shape.width);
    let [products, _] = gated_bounds(shape, [&exact, &vec![0.0; output.len()]]);
    let made = lane.variants_of(ActivationForward(shape)).map_err(text)?;
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

/// The gradient of the output is in `count` parts.
async fn gated_backward(
    lane: &Lane,
    shape: ActivationWidth,
    (rows, count): (usize, usize),
) -> Result<(), String> {
    let ActivationWidth { width, activation, .. } = shape;
    let gate_up = gates(lane, rows, width);
    let (slopes, sums, d_output) = lane.parts(lane.normal(rows * width), count);
    let shape = ActivationWidth { sums, ..shape };
    let (exact, d_output) = (wide(&gate_up), wide(&d_output));
    let [products, terms] = gated_bounds(shape, [&exact, &d_output]);
    let made = lane.variants_of(ActivationBackward(shape)).map_err(text)?;
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
        let (gated, half, sums) = (false, false, PartialSums::WHOLE);
        let shape = ActivationWidth { width, activation, gated, half, sums };
        let (x, d_output) = (gates(&lane, rows, width.div_ceil(2)), lane.normal(rows * width));
        let x = &x[..rows * width];
        let (exact, d_exact) = (wide(x), wide(&d_output));
        let (gradient, output) = activation_backward(activation, &exact, &d_exact);
        // As above: rounding is relative to these.
        let slopes: Vec<f64> =
            exact.iter().zip(&d_exact).map(|(x, d)| d * x.abs().max(1.0)).collect();
        let step = Operand::uniform(&Step::of(rows));
        let (input, poison) = (Operand::floats(x), Operand::poison(rows * width));

        let made = lane.variants_of(ActivationForward(shape)).map_err(text)?;
        let forward = jobs(&made, rows, &[input.clone(), poison.clone(), step.clone()]);
        for (job, got) in forward.iter().zip(lane.run(&forward).await.map_err(text)?) {
            each_close("output", &got.floats(0), &output, &exact, ACTIVATION)
                .map_err(of(&job.kernel))?;
        }

        let made = lane.variants_of(ActivationBackward(shape)).map_err(text)?;
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
