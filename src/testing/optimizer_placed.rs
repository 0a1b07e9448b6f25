//! Family 12: updates of runs that lie in longer buffers, by moments of bytes and of f32.

use super::harness::{Job, Operand};
use super::lane::Lane;
use super::measure::{ROUNDING, close, forbid, of, same, text, wide};
use super::optimizer::{RUNS, adamw_by_parts, decided, exact, step, updated};
use super::{Case, Outcome};
use crate::kernels as k;
use crate::twins::optimizer::{BiasCorrection, adamw8bit_forward};
use std::rc::Rc;

pub(super) fn cases() -> Vec<Case> {
    vec![Case::new("adamw8bit", adamw8bit), Case::new("adamw_placed", adamw_placed)]
}

/// Where a run lies in longer buffers: its first weight, gradient, word of either moment, and block.
const PLACE: [usize; 5] = [37, 11, 64, 21, 3];
/// Elements behind a run.
pub(super) const BEHIND: usize = 70;

/// What lies around a run stays what it was.
pub(super) fn around(
    what: &str,
    got: &[u32],
    before: &Operand,
    own: std::ops::Range<usize>,
) -> Result<(), String> {
    let (start, end) = (own.start, own.end);
    same(what, &got[..start], &before.contents()[..start])?;
    same(what, &got[end..], &before.contents()[end..])
}

/// The same codes, but for values half way between two, which have either.
fn same_codes(got: &[u8], wanted: &[u8]) -> Result<(), String> {
    let apart = got.iter().zip(wanted).map(|(a, b)| a.abs_diff(*b));
    let (other, most) = apart.fold((0, 0), |(n, most), d| (n + usize::from(d > 0), most.max(d)));
    let allowed = 1 + got.len() / 500;
    let message = || format!("{other} of {} codes differ, by up to {most}", got.len());
    forbid(("codes", wanted, allowed), || most > 1 || other > allowed, message)
}

/// Words of four codes each.
fn random_codes(lane: &Lane, words: usize) -> Vec<u32> {
    let bytes: Vec<u8> = lane.integers(4 * words, 256).into_iter().map(|x| x as u8).collect();
    bytemuck::pod_collect_to_vec(&bytes)
}

async fn adamw8bit(lane: Rc<Lane>) -> Outcome {
    for (count, decay_end, update) in [(256, 0, true), (7 * 256, 1000, true), (512, 512, false)] {
        let made = lane.variants(|caps| k::adamw8bit(caps, count)).map_err(text)?;
        let [weight0, gradient0, word0, word1, block0] = PLACE;
        let weights = lane.normal(weight0 + count + BEHIND);
        let gradients = lane.normal(gradient0 + count + BEHIND);
        let codes = [word0, word1].map(|first| random_codes(&lane, first + count / 4 + BEHIND));
        let blocks = block0 + count / 256;
        let scales: Vec<f32> =
            lane.normal(2 * (blocks + 2)).into_iter().map(|x| x.abs() + 0.01).collect();
        let (state, decision) = decided(update);
        let operands = [
            Operand::floats(&weights),
            Operand::floats(&gradients),
            Operand::words(&codes[0]),
            Operand::words(&codes[1]),
            Operand::floats(&scales),
            Operand::floats(&state),
            Operand::uniform(&step()),
            Operand::range(weight0, 0, gradient0, decay_end),
            Operand::range(word0, block0, word1, 0),
        ];
        let own = weight0..weight0 + count;
        let own_words = [word0, word1].map(|first| first..first + count / 4);
        let own_scales = 2 * block0..2 * blocks;
        let mut w = wide(&weights[own.clone()]);
        let g = wide(&gradients[gradient0..gradient0 + count]);
        let own_codes = |codes: &[u32], moment: usize| -> Vec<u8> {
            bytemuck::cast_slice(&codes[own_words[moment].clone()]).to_vec()
        };
        let [mut c1, mut c2] = [own_codes(&codes[0], 0), own_codes(&codes[1], 1)];
        let mut s = wide(&scales[own_scales.clone()]);
        let correction = BiasCorrection { first: f64::from(state[0]), second: f64::from(state[1]) };
        let both = [&mut c1[..], &mut c2[..]];
        adamw8bit_forward(&mut w, &g, both, &mut s, &exact(), correction, decision, decay_end);
        let jobs: Vec<_> =
            made.iter().map(|kernel| Job::new(kernel, 1, operands.to_vec())).collect();
        for (job, got) in jobs.iter().zip(lane.run(&jobs).await.map_err(text)?) {
            let named = of(&job.kernel);
            // Outputs are numbered as bindings that are written: weights, both moments, scales.
            close("weights", &got.floats(0)[own.clone()], &w, ROUNDING).map_err(&named)?;
            close("scales", &got.floats(3)[own_scales.clone()], &s, ROUNDING).map_err(&named)?;
            around("weights", got.words(0), &operands[0], own.clone()).map_err(&named)?;
            for (moment, wanted) in [&c1, &c2].into_iter().enumerate() {
                let (words, before) = (got.words(moment + 1), &operands[moment + 2]);
                same_codes(&own_codes(words, moment), wanted).map_err(&named)?;
                around("codes", words, before, own_words[moment].clone()).map_err(&named)?;
            }
            around("scales", got.words(3), &operands[4], own_scales.clone()).map_err(&named)?;
            if !update {
                same("moment1", got.words(1), operands[2].contents()).map_err(&named)?;
                same("moment2", got.words(2), operands[3].contents()).map_err(&named)?;
            }
        }
    }
    Ok(lane.summary())
}

async fn adamw_placed(lane: Rc<Lane>) -> Outcome {
    for (count, decay_end, update) in RUNS {
        let made = lane.variants(|caps| k::adamw_placed(caps, count)).map_err(text)?;
        let [weight0, gradient0, word0, word1, _] = PLACE;
        let weights = lane.normal(weight0 + count + BEHIND);
        let gradients = lane.normal(gradient0 + count + BEHIND);
        let moment1 = lane.normal(word0 + count + BEHIND);
        let moment2: Vec<f32> =
            lane.normal(word1 + count + BEHIND).into_iter().map(f32::abs).collect();
        let (state, decision) = decided(update);
        let operands = [
            Operand::floats(&weights),
            Operand::floats(&gradients),
            Operand::floats(&moment1),
            Operand::floats(&moment2),
            Operand::floats(&state),
            Operand::uniform(&step()),
            Operand::range(weight0, 0, gradient0, decay_end),
            Operand::range(word0, 0, word1, 0),
        ];
        let [own, own1, own2] = [weight0, word0, word1].map(|first| first..first + count);
        let mut w = wide(&weights[own.clone()]);
        let g = wide(&gradients[gradient0..gradient0 + count]);
        let [mut m, mut v] = [wide(&moment1[own1.clone()]), wide(&moment2[own2.clone()])];
        let correction = BiasCorrection { first: f64::from(state[0]), second: f64::from(state[1]) };
        adamw_by_parts([&mut w, &mut m, &mut v], &g, correction, decision, decay_end);
        let jobs: Vec<_> =
            made.iter().map(|kernel| Job::new(kernel, 1, operands.to_vec())).collect();
        for (job, got) in jobs.iter().zip(lane.run(&jobs).await.map_err(text)?) {
            let named = of(&job.kernel);
            for (index, what, own, wanted) in
                [(0, "weights", &own, &w), (1, "moment1", &own1, &m), (2, "moment2", &own2, &v)]
            {
                let operand = &operands[if index == 0 { 0 } else { index + 1 }];
                let before = &[&weights, &moment1, &moment2][index][own.clone()];
                updated(what, &got.floats(index)[own.clone()], wanted, before).map_err(&named)?;
                around(what, got.words(index), operand, own.clone()).map_err(&named)?;
            }
        }
    }
    Ok(lane.summary())
}
