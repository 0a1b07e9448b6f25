//! Family 12: the kernels of Muon but for its products, which are family 03's; the average of weights.

use super::harness::{Job, Operand, Step};
use super::lane::Lane;
use super::measure::{ROUNDING, close, close_to_terms, of, same, text, wide};
use super::optimizer::{RUNS, decided, exact, step, updated};
use super::optimizer_placed::{BEHIND, around};
use super::{Case, Outcome};
use crate::kernels::{self as k, Constant};
use crate::twins::muon::{
    muon_forward, muon_polynomial_forward, muon_scale_forward, muon_update_forward,
};
use crate::twins::optimizer::average_forward;
use std::rc::Rc;

pub(super) fn cases() -> Vec<Case> {
    vec![
        Case::new("muon", momentum),
        Case::new("muon_scale", scale),
        Case::new("muon_polynomial", polynomial),
        Case::new("muon_update", update),
        Case::new("average", average),
    ]
}

/// Exact in f32, as is 1 less it.
const MOMENTUM: f64 = 0.9375;

async fn momentum(lane: Rc<Lane>) -> Outcome {
    let [gradient0, moment0, first, part] = [11, 37, 21, 3];
    for (count, _, update) in RUNS {
        let made = lane.variants(|caps| k::muon(caps, count)).map_err(text)?;
        let gradients = lane.normal(gradient0 + count + BEHIND);
        let moment = lane.normal(moment0 + count + BEHIND);
        let (state, decision) = decided(update);
        let mut with_momentum = step();
        with_momentum.numbers[3][0] = MOMENTUM as f32;
        let parts = k::muon_parts(count);
        let operands = [
            Operand::floats(&gradients),
            Operand::floats(&moment),
            Operand::poison(first + count + BEHIND),
            Operand::poison(part + parts + 2),
            Operand::floats(&state),
            Operand::uniform(&with_momentum),
            Operand::range(gradient0, 0, moment0, 0),
            Operand::range(first, 0, part, 0),
        ];
        let [own, written, sums] =
            [moment0..moment0 + count, first..first + count, part..part + parts];
        let g = wide(&gradients[gradient0..gradient0 + count]);
        let before = &moment[own.clone()];
        let mut m = wide(before);
        let direction = muon_forward(&g, &mut m, MOMENTUM, decision);
        let jobs: Vec<_> =
            made.iter().map(|kernel| Job::new(kernel, 1, operands.to_vec())).collect();
        for (job, got) in jobs.iter().zip(lane.run(&jobs).await.map_err(text)?) {
            let named = of(&job.kernel);
            around("moment1", got.words(0), &operands[1], own.clone()).map_err(&named)?;
            updated("moment1", &got.floats(0)[own.clone()], &m, before).map_err(&named)?;
            let Some(direction) = &direction else {
                same("direction", got.words(1), operands[2].contents()).map_err(&named)?;
                same("squares", got.words(2), operands[3].contents()).map_err(&named)?;
                continue;
            };
            around("direction", got.words(1), &operands[2], written.clone()).map_err(&named)?;
            around("squares", got.words(2), &operands[3], sums.clone()).map_err(&named)?;
            let ahead = &got.floats(1)[written.clone()];
            // It is for the most part what the moment was.
            updated("direction", ahead, direction, before).map_err(&named)?;
            let sum: f64 = got.floats(2)[sums.clone()].iter().map(|&x| f64::from(x)).sum();
            // Of what was written: where that has cancelled, its error is no part of theirs.
            let wanted: f64 = ahead.iter().map(|&x| f64::from(x).powi(2)).sum();
            close("squares", &[sum as f32], &[wanted], ROUNDING).map_err(&named)?;
        }
    }
    Ok(lane.summary())
}

async fn scale(lane: Rc<Lane>) -> Outcome {
    for (count, parts, size) in [(1, 1, 1.0f32), (1003, 7, 0.01), (70_000, 512, 1.0), (300, 2, 0.0)]
    {
        let made = lane.variants(|caps| k::muon_scale(caps, count, parts)).map_err(text)?;
        let squares: Vec<f32> = lane.normal(parts).into_iter().map(|x| size * x * x).collect();
        let direction: Vec<f32> = lane.normal(count).into_iter().map(|x| size * x).collect();
        let mut x = wide(&direction);
        muon_scale_forward(&mut x, wide(&squares).iter().sum());
        let operands = [Operand::floats(&squares), Operand::floats(&direction)];
        let jobs: Vec<_> =
            made.iter().map(|kernel| Job::new(kernel, 1, operands.to_vec())).collect();
        for (job, got) in jobs.iter().zip(lane.run(&jobs).await.map_err(text)?) {
            close("direction", &got.floats(0), &x, ROUNDING).map_err(of(&job.kernel))?;
        }
    }
    Ok(lane.summary())
}

async fn polynomial(lane: Rc<Lane>) -> Outcome {
    for side in [1, 7, 61, 300] {
        let made = lane.variants(|caps| k::muon_polynomial(caps, side)).map_err(text)?;
        let [gram, square] = [(); 2].map(|()| lane.normal(side * side));
        let mut wanted = wide(&square);
        muon_polynomial_forward(&wide(&gram), &mut wanted, side);
        // A matrix of one element can cancel.
        let terms: Vec<f64> = gram
            .iter()
            .zip(&square)
            .map(|(&gram, &square)| f64::from(gram).abs().max(f64::from(square).abs()))
            .collect();
        let operands = [Operand::floats(&gram), Operand::floats(&square)];
        let jobs: Vec<_> =
            made.iter().map(|kernel| Job::new(kernel, 1, operands.to_vec())).collect();
        for (job, got) in jobs.iter().zip(lane.run(&jobs).await.map_err(text)?) {
            close_to_terms("square", &got.floats(0), &wanted, &terms, ROUNDING)
                .map_err(of(&job.kernel))?;
        }
    }
    Ok(lane.summary())
}

async fn update(lane: Rc<Lane>) -> Outcome {
    let [weight0, first] = [37, 11];
    for (count, decay_end, update) in RUNS {
        let rate = Constant(f64::from(0.7f32));
        let made = lane.variants(|caps| k::muon_update(caps, count, rate)).map_err(text)?;
        let weights = lane.normal(weight0 + count + BEHIND);
        let direction = lane.normal(first + count + BEHIND);
        let (state, decision) = decided(update);
        let operands = [
            Operand::floats(&weights),
            Operand::floats(&direction),
            Operand::floats(&state),
            Operand::uniform(&step()),
            Operand::range(weight0, 0, first, decay_end),
        ];
        let own = weight0..weight0 + count;
        let mut w = wide(&weights[own.clone()]);
        let along = wide(&direction[first..first + count]);
        muon_update_forward(&mut w, &along, rate.0, &exact(), decision, decay_end > 0);
        let jobs: Vec<_> =
            made.iter().map(|kernel| Job::new(kernel, 1, operands.to_vec())).collect();
        for (job, got) in jobs.iter().zip(lane.run(&jobs).await.map_err(text)?) {
            let named = of(&job.kernel);
            around("weights", got.words(0), &operands[0], own.clone()).map_err(&named)?;
            updated("weights", &got.floats(0)[own.clone()], &w, &weights[own.clone()])
                .map_err(&named)?;
        }
    }
    Ok(lane.summary())
}

/// After a step, as a beginning and as an exchange.
async fn average(lane: Rc<Lane>) -> Outcome {
    for (count, _, update) in RUNS {
        let share = Constant(f64::from(0.01f32));
        let made = lane.variants(|caps| k::average(caps, count, share)).map_err(text)?;
        let [weights, averages] = [(); 2].map(|()| lane.normal(count));
        for position in 0..3 {
            let operands = [
                Operand::floats(&weights),
                Operand::floats(&averages),
                Operand::floats(&decided(update).0),
                Operand::uniform(&Step { position, ..step() }),
            ];
            let mut wanted = wide(&averages);
            average_forward(&wide(&weights), &mut wanted, share.0, update);
            let jobs: Vec<_> =
                made.iter().map(|kernel| Job::new(kernel, 1, operands.to_vec())).collect();
            for (job, got) in jobs.iter().zip(lane.run(&jobs).await.map_err(text)?) {
                let named = of(&job.kernel);
                let kept = &operands[if position == 2 { 1 } else { 0 }];
                same("weights", got.words(0), kept.contents()).map_err(&named)?;
                if position == 0 {
                    updated("averages", &got.floats(1), &wanted, &averages).map_err(&named)?;
                } else {
                    same("averages", got.words(1), operands[0].contents()).map_err(&named)?;
                }
            }
        }
    }
    Ok(lane.summary())
}
