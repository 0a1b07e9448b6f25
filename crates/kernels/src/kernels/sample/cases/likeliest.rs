//! The likeliest tokens.

use super::EARLIER;
use crate::kernels::sample::twin::{top_logits_forward, top_row};
use crate::kernels::{TopLogits, TopRows};
use crate::plan::Sampling;
use crate::testing::harness::{Job, Operand, POISON, Step};
use crate::testing::lane::Lane;
use crate::testing::measure::{close_to_terms, forbid, of, same, text, wide};
use crate::testing::{Case, Outcome};
use std::rc::Rc;

pub(crate) fn cases() -> Vec<Case> {
    vec![
        Case::new("likeliest tokens", |lane| likeliest(lane, &[1, 2, 7])),
        Case::full("likeliest tokens, more of them", |lane| likeliest(lane, &[20, 32])),
        Case::new("likeliest tokens of rows", of_rows),
    ]
}

/// Distinct logits, logits with many ties, and logits that are all the same.
async fn likeliest(lane: Rc<Lane>, counts: &'static [usize]) -> Outcome {
    const TURNS: usize = 3;
    for vocabulary in [1, 5, 61, 1031, 4099] {
        let normal: Vec<f32> = lane.normal(vocabulary).into_iter().map(|x| 3.0 * x).collect();
        let ties = lane.integers(vocabulary, 4).into_iter().map(|x| x as f32 - 2.0).collect();
        for logits in [normal, ties, vec![-7.5; vocabulary]] {
            for count in counts.iter().copied().filter(|&count| count <= vocabulary) {
                likeliest_of(&lane, &logits, count, TURNS).await?;
            }
        }
    }
    Ok(lane.summary())
}

async fn likeliest_of(
    lane: &Lane,
    logits: &[f32],
    count: usize,
    turns: usize,
) -> Result<(), String> {
    let turn = lane.integers(1, turns)[0];
    let sampling = Sampling { first_draw: EARLIER, ..Sampling::default() };
    let step = Step { draws: EARLIER + turn, ..Step::of(1) };
    let made = lane.variants_of(TopLogits { vocabulary: logits.len(), count }).map_err(text)?;
    let jobs: Vec<_> = made
        .iter()
        .map(|kernel| {
            let operands = vec![
                Operand::floats(logits),
                Operand::poison(2 * count * turns),
                Operand::uniform(&step),
                Operand::uniform(&sampling),
            ];
            Job::new(kernel, 1, operands)
        })
        .collect();
    let (tokens, expected): (Vec<u32>, Vec<f64>) =
        top_logits_forward(&wide(logits), count).into_iter().unzip();
    let terms: Vec<f64> = tokens.iter().map(|&token| f64::from(logits[token as usize])).collect();
    for (job, got) in jobs.iter().zip(lane.run(&jobs).await.map_err(text)?) {
        let wrong = of(&job.kernel);
        for (index, slot) in got.words(0).chunks(2 * count).enumerate() {
            if index != turn as usize {
                let wrote = || slot.iter().any(|&word| word != POISON);
                let message = || format!("wrote turn {index}, not only {turn}");
                forbid(("other turn", index), wrote, message).map_err(&wrong)?;
                continue;
            }
            let found: Vec<u32> = slot.iter().step_by(2).copied().collect();
            let message = || format!("{found:?} of {}, not {tokens:?}", logits.len());
            forbid(("likeliest", &tokens), || found != tokens, message).map_err(&wrong)?;
            let logprobs: Vec<f32> =
                slot.iter().skip(1).step_by(2).map(|&bits| f32::from_bits(bits)).collect();
            close_to_terms("log-probabilities", &logprobs, &expected, &terms, 2e-6)
                .map_err(&wrong)?;
        }
    }
    Ok(())
}

/// Rows of a chunk, one of them with many ties. Those before and after are not its own.
async fn of_rows(lane: Rc<Lane>) -> Outcome {
    const ROW0: usize = 3;
    const ROWS: usize = 5;
    for (vocabulary, count) in [(1, 1), (5, 5), (61, 7), (1031, 64)] {
        let mut logits: Vec<f32> =
            lane.normal(ROWS * vocabulary).into_iter().map(|x| 3.0 * x).collect();
        let ties = lane.integers(vocabulary, 4).into_iter().map(|x| x as f32 - 2.0);
        logits.splice(vocabulary * 2..vocabulary * 3, ties);
        let own = logits.chunks(vocabulary).flat_map(|row| top_row(row, count));
        let around = vec![POISON; 2 * count * ROW0];
        let expected: Vec<u32> = around.iter().copied().chain(own).chain(around.clone()).collect();
        let made = lane.variants_of(TopRows { vocabulary, count }).map_err(text)?;
        let operands = vec![
            Operand::floats(&logits),
            Operand::poison(expected.len()),
            Operand::uniform(&Step::of(ROW0 + ROWS)),
            Operand::range(ROW0, ROWS + 1, 0, 0),
        ];
        let jobs: Vec<_> =
            made.iter().map(|kernel| Job::new(kernel, ROWS, operands.clone())).collect();
        for (job, got) in jobs.iter().zip(lane.run(&jobs).await.map_err(text)?) {
            same("tokens and logits", got.words(0), &expected).map_err(of(&job.kernel))?;
        }
    }
    Ok(lane.summary())
}
