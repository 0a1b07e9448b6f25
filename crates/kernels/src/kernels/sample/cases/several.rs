//! Draws of rows that are of texts of their own.

use crate::kernels as k;
use crate::kernels::linear::cases::several::documents;
use crate::kernels::sample::cases::twin_draws;
use crate::kernels::sample::twin::{SamplingOptions, sample_forward};
use crate::plan::{RowChoice, Sampling};
use crate::random::{philox, split, uniform};
use crate::testing::harness::{Job, Operand, Outputs, POISON};
use crate::testing::lane::Lane;
use crate::testing::ledger::{Bits, Given};
use crate::testing::measure::{hold, of, text, wide};
use crate::testing::{Case, Outcome};
use std::rc::Rc;

pub(crate) fn cases() -> Vec<Case> {
    vec![Case::new("sample for several texts", draws)]
}

const TURNS: usize = 6;
const TEXTS: usize = 5;
/// The row that may advance twice.
const ENDING: usize = 3;

/// Draws that a row has made before.
const fn earlier(row: usize) -> u32 {
    3 * row as u32
}

fn choice(lane: &Lane, row: usize, options: &SamplingOptions, position: usize) -> RowChoice {
    RowChoice {
        sampling: Sampling {
            temperature: options.temperature as f32,
            top_p: options.top_p as f32,
            min_p: 0.0,
            repetition_penalty: options.repetition_penalty as f32,
            top_k: options.top_k as u32,
            seed: split(lane.seed + row as u64),
            first_draw: earlier(row),
        },
        offset: earlier(row).wrapping_sub(position as u32),
        last: if row == ENDING { position as u32 + 2 } else { 1000 },
        ..RowChoice::default()
    }
}

/// Greedy rows beside others with temperatures, filters and penalties, over several turns; a row that has reached
/// its last position draws on and is not told.
async fn draws(lane: Rc<Lane>) -> Outcome {
    for vocabulary in [61, 1031] {
        let base = SamplingOptions::default();
        let options = [
            SamplingOptions { temperature: 0.0, ..base },
            SamplingOptions { temperature: 0.7, repetition_penalty: 1.4, ..base },
            base,
            SamplingOptions { top_k: 5, ..base },
            SamplingOptions { top_p: 0.8, ..base },
        ];
        let logits: Vec<f32> =
            lane.normal(TEXTS * vocabulary).into_iter().map(|x| 2.0 * x).collect();
        let positions: Vec<usize> = (0..TEXTS).map(|row| 11 * row).collect();
        let choices: Vec<RowChoice> =
            (0..TEXTS).map(|row| choice(&lane, row, &options[row], positions[row])).collect();
        let words = vocabulary.div_ceil(32);
        let operands = [
            Operand::floats(&logits),
            Operand::words(&vec![0; TEXTS * words]),
            Operand::poison(TEXTS),
            Operand::poison(2 * TURNS * TEXTS),
            Operand::words(&documents(&positions)),
            Operand::words(bytemuck::cast_slice(&choices)),
        ];
        let made = lane.variants_of(k::SampleSeveral { vocabulary, rows: TEXTS }).map_err(text)?;
        let jobs: Vec<_> = made
            .iter()
            .map(|kernel| Job { repeat: TURNS, ..Job::new(kernel, TEXTS, operands.to_vec()) })
            .collect();
        for (job, got) in jobs.iter().zip(lane.run(&jobs).await.map_err(text)?) {
            for row in 0..TEXTS {
                let exact = wide(&logits[row * vocabulary..][..vocabulary]);
                let row = (row, positions[row]);
                let shares = (0..TURNS).map(|turn| share(&lane, row.0, turn));
                let own = || twin_draws(&exact, &[], &[], &options[row.0], shares.clone());
                let inputs = (row, Bits(&exact), format!("{:?}", options[row.0]), Given(own));
                let check = || text_drawn(&lane, &got, row, &exact, &options[row.0]);
                hold(inputs, check).map_err(of(&job.kernel))?;
            }
        }
    }
    Ok(lane.summary())
}

/// The random number of a row's draw.
fn share(lane: &Lane, row: usize, turn: usize) -> f64 {
    const STREAM: u32 = 0x7361_6d70;
    let counter = [earlier(row) + turn as u32, 0, 0, STREAM];
    f64::from(uniform(philox(counter, split(lane.seed + row as u64))[0]))
}

/// What a row has drawn, and where it has come to.
fn text_drawn(
    lane: &Lane,
    got: &Outputs,
    (row, position): (usize, usize),
    exact: &[f64],
    options: &SamplingOptions,
) -> Result<(), String> {
    let (mut history, words) = (vec![], exact.len().div_ceil(32));
    for turn in 0..TURNS {
        let token = got.words(2)[2 * (turn * TEXTS + row)];
        if row == ENDING && turn > 2 {
            if token != POISON {
                return Err(format!("turn {turn} of a row that had ended"));
            }
            continue;
        }
        let share = share(lane, row, turn);
        let near = [share - 2e-6, share, share + 2e-6].map(|x| x.clamp(0.0, 1.0 - 1e-9));
        let at = |u| sample_forward(exact, &history, &[], options, u).0;
        if !near.into_iter().any(|u| at(u) == token) {
            return Err(format!("row {row}, turn {turn}: {token}, not {}", at(share)));
        }
        history.push(token);
    }
    let moved = if row == ENDING { 2 } else { TURNS };
    if got.words(3)[row] != (row as u32).wrapping_sub((position + moved) as u32) {
        return Err(format!("row {row} has not advanced by {moved}"));
    }
    let own = &got.words(0)[row * words..][..words];
    if history.iter().any(|&t| own[t as usize / 32] >> (t % 32) & 1 == 0) {
        return Err(format!("row {row} has not seen its tokens"));
    }
    if got.words(1)[row] != history[history.len() - 1] {
        return Err(format!("the next input of row {row} is not its last token"));
    }
    Ok(())
}
