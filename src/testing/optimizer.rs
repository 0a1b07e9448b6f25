//! Family 12: gradient norm, the decision about a step, the optimizers' updates.

use super::harness::{Job, Operand, Outputs, Step};
use super::lane::Lane;
use super::measure::{ROUNDING, close, close_to_terms, forbid, of, same, text, wide};
use super::{Case, Outcome};
use crate::kernels as k;
use crate::twins::optimizer::{
    BiasCorrection, Decision, OptimizerOptions, adamw_forward, grad_norm_forward, lion_forward,
    sgd_forward, step_decision_forward,
};
use std::rc::Rc;

pub(super) fn cases() -> Vec<Case> {
    vec![
        Case::new("grad_norm", grad_norm),
        Case::new("step_decision", step_decision),
        Case::new("step_decision of a step that is not finite", not_finite),
        Case::new("adamw", adamw),
        Case::new("sgd", sgd),
        Case::new("lion", lion),
    ]
}

const OPTIONS: OptimizerOptions<f32> = OptimizerOptions {
    learning_rate: 3e-3,
    beta1: 0.9,
    beta2: 0.95,
    epsilon: 1e-8,
    weight_decay: 0.1,
    max_grad_norm: 1.0,
    gradient_scale: 0.25,
};

pub(super) fn step() -> Step {
    Step {
        tokens: 1,
        learning_rate: OPTIONS.learning_rate,
        gradient_scale: OPTIONS.gradient_scale,
        max_grad_norm: OPTIONS.max_grad_norm,
        weight_decay: OPTIONS.weight_decay,
        carried: [OPTIONS.beta1, OPTIONS.beta2, 1.0 - OPTIONS.beta1, 1.0 - OPTIONS.beta2],
        numbers: [OPTIONS.beta1, OPTIONS.beta2, OPTIONS.epsilon, 0.0, 0.0, 0.0]
            .map(|x| [x, 1.0 - x, 0.0, 0.0]),
        ..Step::default()
    }
}

/// The same values, as the kernel has them, in f64.
pub(super) fn exact() -> OptimizerOptions<f64> {
    OptimizerOptions {
        learning_rate: OPTIONS.learning_rate.into(),
        beta1: OPTIONS.beta1.into(),
        beta2: OPTIONS.beta2.into(),
        epsilon: OPTIONS.epsilon.into(),
        weight_decay: OPTIONS.weight_decay.into(),
        max_grad_norm: OPTIONS.max_grad_norm.into(),
        gradient_scale: OPTIONS.gradient_scale.into(),
    }
}

async fn grad_norm(lane: Rc<Lane>) -> Outcome {
    let made = lane.variants(k::grad_norm).map_err(text)?;
    for count in [4, 1000, 150_004] {
        let gradients = lane.normal(count);
        let operands = [
            Operand::floats(&gradients),
            Operand::poison(k::GRAD_NORM_GROUPS),
            Operand::uniform(&step()),
        ];
        let jobs: Vec<_> =
            made.iter().map(|kernel| Job::new(kernel, 1, operands.to_vec())).collect();
        let expected = grad_norm_forward(&wide(&gradients), f64::from(OPTIONS.gradient_scale));
        for (job, got) in jobs.iter().zip(lane.run(&jobs).await.map_err(text)?) {
            let sum: f64 = got.floats(0).iter().map(|&part| f64::from(part)).sum();
            close(&format!("{count} gradients"), &[sum as f32], &[expected], ROUNDING)
                .map_err(of(&job.kernel))?;
        }
    }
    Ok(lane.summary())
}

fn decision_operands(squares: &[f32], metrics: &[f32], optimizer: &[f32]) -> Vec<Operand> {
    let mut operands: Vec<_> =
        [squares, metrics, optimizer].into_iter().map(Operand::floats).collect();
    operands.push(Operand::uniform(&step()));
    operands
}

async fn decide(
    lane: &Lane,
    squares: &[f32],
    metrics: &[f32],
    optimizer: &[f32],
) -> Result<Vec<(Job, Outputs)>, String> {
    let made = lane.variants(|caps| k::step_decision(caps, squares.len())).map_err(text)?;
    let operands = decision_operands(squares, metrics, optimizer);
    let jobs: Vec<_> = made.iter().map(|kernel| Job::new(kernel, 1, operands.clone())).collect();
    let got = lane.run(&jobs).await.map_err(text)?;
    Ok(jobs.into_iter().zip(got).collect())
}

async fn step_decision(lane: Rc<Lane>) -> Outcome {
    for (count, size) in [(1, 4.0f32), (512, 1e-6), (1536, 0.1)] {
        let squares: Vec<f32> = lane.normal(count).into_iter().map(|x| size * x * x).collect();
        let metrics = lane.normal(8);
        let optimizer = [0.271, 0.142_6, f32::NAN, f32::NAN];
        let mut correction =
            BiasCorrection { first: f64::from(optimizer[0]), second: f64::from(optimizer[1]) };
        let decision = step_decision_forward(
            &wide(&squares),
            f64::from(metrics[2]),
            &exact(),
            &mut correction,
        );
        let mut expected = wide(&metrics);
        expected[4..6].copy_from_slice(&[decision.norm, 0.0]);
        for (job, got) in decide(&lane, &squares, &metrics, &optimizer).await? {
            let named = of(&job.kernel);
            close("metrics", &got.floats(0), &expected, ROUNDING).map_err(&named)?;
            let state = [correction.first, correction.second, decision.factor, 1.0];
            close("optimizer", &got.floats(1), &state, ROUNDING).map_err(&named)?;
        }
    }
    Ok(lane.summary())
}

/// A loss or a gradient that is not finite skips the update and leaves what is carried as it was.
async fn not_finite(lane: Rc<Lane>) -> Outcome {
    let good = lane.normal(512).into_iter().map(|x| x * x).collect::<Vec<_>>();
    for (value, loss) in
        [(f32::NAN, 1.0), (f32::INFINITY, 1.0), (1.0, f32::NAN), (1.0, f32::INFINITY)]
    {
        let mut squares = good.clone();
        squares[300] = value;
        let mut metrics = [0.5; 8];
        metrics[2] = loss;
        let optimizer = [0.271, 0.142_6, 1.0, 1.0];
        for (job, got) in decide(&lane, &squares, &metrics, &optimizer).await? {
            let named = of(&job.kernel);
            let state = Operand::floats(&[0.271, 0.142_6, 0.0, 0.0]);
            same("optimizer", got.words(1), state.contents()).map_err(&named)?;
            let skipped = 1.0f32;
            let message = || "the skipped step is not reported".into();
            let other = || got.floats(0)[5] != skipped;
            forbid(("skipped", skipped.to_bits()), other, message).map_err(&named)?;
        }
    }
    Ok(lane.summary())
}

async fn adamw(lane: Rc<Lane>) -> Outcome {
    for (count, decay_end, update) in
        [(1, 0, true), (1003, 640, true), (70_000, 69_999, true), (300, 100, false)]
    {
        let made = lane.variants(|caps| k::adamw(caps, count)).map_err(text)?;
        let weights = lane.normal(count);
        // Some gradients are so small that epsilon is a part, or most, of the denominator.
        let sizes = || [1.0f32, 1e-8, 1e-10].into_iter().cycle();
        let sized = |size: fn(f32, f32) -> f32| -> Vec<f32> {
            lane.normal(count).into_iter().zip(sizes()).map(|(x, s)| size(x, s)).collect()
        };
        let [gradients, moment1] = [(); 2].map(|()| sized(|x, size| size * x));
        let moment2 = sized(|x, size| size * size * x.abs());
        let factor = if update { 0.37f32 } else { 0.0 };
        let optimizer = [0.271f32, 0.142_6, factor, f32::from(update)];
        let operands = [
            Operand::floats(&weights),
            Operand::floats(&gradients),
            Operand::floats(&moment1),
            Operand::floats(&moment2),
            Operand::floats(&optimizer),
            Operand::uniform(&step()),
            Operand::range(0, 1, 0, decay_end),
        ];
        let [mut w, g, mut m, mut v] = [&weights, &gradients, &moment1, &moment2].map(|x| wide(x));
        let correction =
            BiasCorrection { first: f64::from(optimizer[0]), second: f64::from(optimizer[1]) };
        let decision = Decision { norm: 1.0, update, factor: f64::from(factor) };
        adamw_by_parts([&mut w, &mut m, &mut v], &g, correction, decision, decay_end);
        let jobs: Vec<_> =
            made.iter().map(|kernel| Job::new(kernel, 1, operands.to_vec())).collect();
        for (job, got) in jobs.iter().zip(lane.run(&jobs).await.map_err(text)?) {
            let named = of(&job.kernel);
            for (index, (name, expected, before)) in
                [("weights", &w, &weights), ("moment1", &m, &moment1), ("moment2", &v, &moment2)]
                    .into_iter()
                    .enumerate()
            {
                updated(name, &got.floats(index), expected, before).map_err(&named)?;
            }
            if !update {
                same("weights", got.words(0), operands[0].contents()).map_err(&named)?;
            }
        }
    }
    Ok(lane.summary())
}

/// Lengths around a workgroup and past all of them, elements that are decayed, whether the step updates.
pub(super) const RUNS: [(usize, usize, bool); 4] =
    [(1, 0, true), (1003, 640, true), (70_000, 69_999, true), (300, 100, false)];

/// Of a step: what `step_decision_forward` leaves, for the kernel and for the twin.
pub(super) fn decided(update: bool) -> ([f32; 4], Decision<f64>) {
    let factor = if update { 0.37f32 } else { 0.0 };
    let decision = Decision { norm: 1.0, update, factor: f64::from(factor) };
    ([0.271, 0.142_6, factor, f32::from(update)], decision)
}

/// The twin's update of weights and moments, of which the first `decay_end` elements are decayed.
pub(super) fn adamw_by_parts(
    [w, m, v]: [&mut [f64]; 3],
    g: &[f64],
    correction: BiasCorrection<f64>,
    decision: Decision<f64>,
    decay_end: usize,
) {
    for (part, decay) in [(0..decay_end, true), (decay_end..g.len(), false)] {
        let (w, m, v) = (&mut w[part.clone()], &mut m[part.clone()], &mut v[part.clone()]);
        adamw_forward(w, &g[part], m, v, &exact(), correction, decision, decay);
    }
}

/// Holds what an update leaves to what is expected. An update can cancel almost all of what was there, which then is
/// what the errors are relative to.
pub(super) fn updated(
    what: &str,
    got: &[f32],
    expected: &[f64],
    before: &[f32],
) -> Result<(), String> {
    close_to_terms(what, got, expected, &wide(before), ROUNDING)
}

/// Runs an update with one moment at most on every variant and holds weights and moment to what is expected.
async fn hold(
    lane: &Lane,
    made: &[k::Kernel],
    [weights, gradients, moment]: [&[f32]; 3],
    (decay_end, update): (usize, bool),
    [w, m]: [&[f64]; 2],
) -> Result<(), String> {
    let mut operands = vec![
        Operand::floats(weights),
        Operand::floats(gradients),
        Operand::floats(&decided(update).0),
        Operand::uniform(&step()),
        Operand::range(0, 1, 0, decay_end),
        Operand::floats(moment),
    ];
    let bound = made.first().map_or(0, |kernel| kernel.bindings.len());
    operands.truncate(bound);
    let jobs: Vec<_> = made.iter().map(|kernel| Job::new(kernel, 1, operands.clone())).collect();
    for (job, got) in jobs.iter().zip(lane.run(&jobs).await.map_err(text)?) {
        let named = of(&job.kernel);
        if !update {
            same("weights", got.words(0), operands[0].contents()).map_err(&named)?;
        }
        updated("weights", &got.floats(0), w, weights).map_err(&named)?;
        if bound == 6 {
            updated("moment1", &got.floats(1), m, moment).map_err(&named)?;
        }
    }
    Ok(())
}

async fn sgd(lane: Rc<Lane>) -> Outcome {
    for momentum in [false, true] {
        for (count, decay_end, update) in RUNS {
            let made = lane.variants(|caps| k::sgd(caps, count, momentum)).map_err(text)?;
            let [weights, gradients, moment] = [(); 3].map(|()| lane.normal(count));
            let [mut w, g, mut m] = [&weights, &gradients, &moment].map(|x| wide(x));
            for (part, decay) in [(0..decay_end, true), (decay_end..count, false)] {
                let velocity = momentum.then_some(&mut m[part.clone()]);
                let (w, g) = (&mut w[part.clone()], &g[part]);
                sgd_forward(w, g, velocity, &exact(), decided(update).1, decay);
            }
            let operands = [&weights[..], &gradients, &moment];
            hold(&lane, &made, operands, (decay_end, update), [&w, &m]).await?;
        }
    }
    Ok(lane.summary())
}

async fn lion(lane: Rc<Lane>) -> Outcome {
    for (count, decay_end, update) in RUNS {
        let made = lane.variants(|caps| k::lion(caps, count)).map_err(text)?;
        let [weights, mut gradients, mut moment] = [(); 3].map(|()| lane.normal(count));
        // A mean near 0 has the sign of its rounding: such gradients are replaced. A mean of 0 has none.
        let factor = decided(update).0[2];
        for (g, m) in gradients.iter_mut().zip(&moment) {
            let (old, new) = (OPTIONS.beta1 * m, (1.0 - OPTIONS.beta1) * factor * *g);
            if (old + new).abs() < 1e-3 * (old.abs() + new.abs()) {
                *g = *m;
            }
        }
        (gradients[count / 2], moment[count / 2]) = (0.0, 0.0);
        let [mut w, g, mut m] = [&weights, &gradients, &moment].map(|x| wide(x));
        for (part, decay) in [(0..decay_end, true), (decay_end..count, false)] {
            let (w, m) = (&mut w[part.clone()], &mut m[part.clone()]);
            lion_forward(w, &g[part], m, &exact(), decided(update).1, decay);
        }
        let operands = [&weights[..], &gradients, &moment];
        hold(&lane, &made, operands, (decay_end, update), [&w, &m]).await?;
    }
    Ok(lane.summary())
}
