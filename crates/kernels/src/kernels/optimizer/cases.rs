//! Family 12: what stands around the rules' kernels. Gradient norm, the decision about a step, the average.

pub(crate) mod update;

use super::{Average, GradNorm, StepDecision};
use crate::caps::Capabilities;
use crate::kernels::optimizer::cases::update::{RUNS, decided, step_of};
use crate::kernels::optimizer::twin::{
    StepOptions, average_forward, grad_norm_forward, step_decision_forward,
};
use crate::kernels::{self as k, Constant, Spec};
use crate::optim::RULES;
use crate::testing::catalogue::Entry;
use crate::testing::harness::{Job, Operand, Outputs, Step};
use crate::testing::lane::Lane;
use crate::testing::measure::{ROUNDING, close, close_to_terms, forbid, of, same, text, wide};
use crate::testing::{Case, Outcome};
use std::rc::Rc;

pub(crate) fn cases() -> Vec<Case> {
    let mut cases = vec![
        Case::new("grad_norm", grad_norm),
        Case::new("step_decision", step_decision),
        Case::new("step_decision of a step that is not finite", not_finite),
        Case::new("average", average),
    ];
    cases.extend(update::cases());
    cases
}

pub(crate) fn examples(caps: &Capabilities) -> Vec<Entry> {
    let mut entries = vec![("gradient norm".to_owned(), GradNorm.kernel(caps))];
    for partials in [1, 61, 768, 4096, 150_001] {
        let kernel = StepDecision { partials }.kernel(caps);
        entries.push((format!("decision of {partials}"), kernel));
    }
    for count in [1, 61, 768].map(|width| width * 40_000) {
        let kernel = Average { count, share: Constant(0.01) }.kernel(caps);
        entries.push((format!("average of {count}"), kernel));
    }
    for kernel in RULES.iter().flat_map(|rule| rule.kernels) {
        for sizes in kernel.tests.sizes {
            let what = format!("{} of {sizes:?}", kernel.name);
            entries.push((what, kernel.of(*sizes).kernel(caps)));
        }
    }
    entries
}

fn step() -> Step {
    step_of(RULES[0])
}

async fn grad_norm(lane: Rc<Lane>) -> Outcome {
    let made = lane.variants_of(k::GradNorm).map_err(text)?;
    for count in [4, 1000, 150_004] {
        let gradients = lane.normal(count);
        let operands = [
            Operand::floats(&gradients),
            Operand::poison(k::GRAD_NORM_GROUPS),
            Operand::uniform(&step()),
        ];
        let jobs: Vec<_> =
            made.iter().map(|kernel| Job::new(kernel, 1, operands.to_vec())).collect();
        let expected = grad_norm_forward(&wide(&gradients), f64::from(step().gradient_scale));
        for (job, got) in jobs.iter().zip(lane.run(&jobs).await.map_err(text)?) {
            let sum: f64 = got.floats(0).iter().map(|&part| f64::from(part)).sum();
            close(&format!("{count} gradients"), &[sum as f32], &[expected], ROUNDING)
                .map_err(of(&job.kernel))?;
        }
    }
    Ok(lane.summary())
}

async fn decide(
    lane: &Lane,
    squares: &[f32],
    metrics: &[f32],
    optimizer: &[f32],
    step: Step,
) -> Result<Vec<(Job, Outputs)>, String> {
    let made = lane.variants_of(k::StepDecision { partials: squares.len() }).map_err(text)?;
    let mut operands: Vec<_> =
        [squares, metrics, optimizer].into_iter().map(Operand::floats).collect();
    operands.push(Operand::uniform(&step));
    let jobs: Vec<_> = made.iter().map(|kernel| Job::new(kernel, 1, operands.clone())).collect();
    let got = lane.run(&jobs).await.map_err(text)?;
    Ok(jobs.into_iter().zip(got).collect())
}

/// Also of a profile's step, which leaves what is carried as it was.
async fn step_decision(lane: Rc<Lane>) -> Outcome {
    for (count, size, still) in [(1, 4.0f32, 0), (512, 1e-6, 0), (1536, 0.1, 0), (512, 0.1, 1)] {
        let squares: Vec<f32> = lane.normal(count).into_iter().map(|x| size * x * x).collect();
        let metrics = lane.normal(8);
        let optimizer = [0.271, 0.142_6, f32::NAN, f32::NAN];
        let carried = [0, 1].map(|i| f64::from(optimizer[i]));
        let step = Step { still, ..step() };
        let options = StepOptions::of(&step);
        let loss = f64::from(metrics[2]);
        let decision = step_decision_forward(&wide(&squares), loss, &options, carried);
        let mut expected = wide(&metrics);
        expected[4..6].copy_from_slice(&[decision.norm, 0.0]);
        let [first, second] = if still == 0 { decision.carried } else { carried };
        for (job, got) in decide(&lane, &squares, &metrics, &optimizer, step).await? {
            let named = of(&job.kernel);
            close("metrics", &got.floats(0), &expected, ROUNDING).map_err(&named)?;
            let state = [first, second, decision.factor, 1.0];
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
        for (job, got) in decide(&lane, &squares, &metrics, &optimizer, step()).await? {
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

/// After a step, a profile's and another, as a beginning and as an exchange.
async fn average(lane: Rc<Lane>) -> Outcome {
    for (count, _, update) in RUNS {
        let share = Constant(f64::from(0.01f32));
        let made = lane.variants_of(k::Average { count, share }).map_err(text)?;
        let [weights, averages] = [(); 2].map(|()| lane.normal(count));
        for (position, still) in [(0, 0), (0, 1), (1, 0), (2, 0)] {
            let mut operands = vec![Operand::floats(&weights), Operand::floats(&averages)];
            operands.extend(decided(update, &Step { position, still, ..step() }));
            let mut wanted = wide(&averages);
            average_forward(&wide(&weights), &mut wanted, share.0, update && still == 0);
            let jobs: Vec<_> =
                made.iter().map(|kernel| Job::new(kernel, 1, operands.clone())).collect();
            for (job, got) in jobs.iter().zip(lane.run(&jobs).await.map_err(text)?) {
                let named = of(&job.kernel);
                let kept = &operands[if position == 2 { 1 } else { 0 }];
                same("weights", got.words(0), kept.contents()).map_err(&named)?;
                if position == 0 {
                    close_to_terms("averages", &got.floats(1), &wanted, &wide(&averages), ROUNDING)
                        .map_err(&named)?;
                } else {
                    same("averages", got.words(1), operands[0].contents()).map_err(&named)?;
                }
            }
        }
    }
    Ok(lane.summary())
}
