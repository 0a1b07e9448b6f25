//! Family 01: rows of a table in parts, by token or by position, and their deterministic gradients.

use super::{EmbeddingBackward, EmbeddingForward, PositionBackward, PositionForward};
use crate::caps::Capabilities;
use crate::data::{sorted_by_token, write_document_ends};
use crate::kernels::embedding::twin::{
    embedding_backward, embedding_forward, position_backward, position_forward,
};
use crate::kernels::weights::twin::{pack_weights_forward, unpack_weights_forward};
use crate::kernels::{self as k, Kernel, Spec, WeightFormat};
use crate::testing::catalogue::Entry;
use crate::testing::catalogue::MATRICES;
use crate::testing::harness::{Job, Operand, Step};
use crate::testing::lane::Lane;
use crate::testing::measure::{ROUNDING, close, directional, dot, of, same, text, wide};
use crate::testing::{Case, Outcome};
use std::rc::Rc;

const VOCABULARY: usize = 61;
/// The vocabulary rows of a part in the middle: tokens of the other parts are left alone.
const PART: std::ops::Range<usize> = 17..47;

pub(crate) fn cases() -> Vec<Case> {
    let packed = WeightFormat::ALL.into_iter().filter(|format| *format != WeightFormat::F32);
    let packed = packed.map(|format| {
        let name = format!("embedding of {} rows", format.name());
        Case::new(name, move |lane| from_packed(lane, format))
    });
    let plain = [
        Case::new("embedding_forward", forward),
        Case::new("embedding of a decoded row", decoded),
        Case::new("embedding_backward", backward),
        Case::new("position_forward", positions),
        Case::new("position_backward", positions_backward),
    ];
    plain.into_iter().chain(packed).collect()
}

pub(crate) fn examples(caps: &Capabilities) -> Vec<Entry> {
    let mut entries = vec![];
    for hidden in [1, 61, 768] {
        let mut add = |what: &str, kernel| entries.push((format!("{what} of {hidden}"), kernel));
        let plain =
            |rotated| EmbeddingForward { hidden, rows: 1, format: WeightFormat::F32, rotated };
        add("embedding", plain(0).kernel(caps));
        add("embedding of a row", plain(64).kernel(caps));
        add("embedding backward", EmbeddingBackward { hidden, padding: None }.kernel(caps));
        let padded = EmbeddingBackward { hidden, padding: Some(hidden) };
        add("embedding backward with padding", padded.kernel(caps));
        add("positions", PositionForward { hidden }.kernel(caps));
        add("positions backward", PositionBackward { hidden, ends: 64 }.kernel(caps));
    }
    for (rows, hidden) in MATRICES {
        for format in WeightFormat::ALL.into_iter().filter(|format| format.packs(hidden)) {
            for rotated in [0, 20] {
                let kernel = EmbeddingForward { hidden, rows, format, rotated }.kernel(caps);
                let what = format!("rows of {rows}x{hidden} in {}", format.name());
                entries.push((format!("{what}, {rotated} angles"), kernel));
            }
        }
    }
    entries
}

async fn forward(lane: Rc<Lane>) -> Outcome {
    for hidden in [1, 5, 40] {
        let made = lane
            .variants_of(k::EmbeddingForward {
                hidden,
                rows: 1,
                format: WeightFormat::F32,
                rotated: 0,
            })
            .map_err(text)?;
        for rows in [1, 67] {
            let tokens = lane.integers(rows, VOCABULARY);
            let weight = lane.normal(VOCABULARY * hidden);
            let before = lane.normal(rows * hidden);
            let gathered = embedding_forward(&tokens, &weight, hidden);
            let expected: Vec<u32> = (0..rows * hidden)
                .map(|i| PART.contains(&(tokens[i / hidden] as usize)).then_some(gathered[i]))
                .zip(&before)
                .map(|(own, &before)| own.unwrap_or(before).to_bits())
                .collect();
            let jobs: Vec<_> = made
                .iter()
                .map(|kernel| {
                    let part = &weight[PART.start * hidden..PART.end * hidden];
                    let operands = vec![
                        Operand::words(&tokens),
                        Operand::floats(part),
                        Operand::floats(&before),
                        Operand::uniform(&Step::of(rows)),
                        Operand::range(0, rows, PART.start, PART.len()),
                    ];
                    Job::new(kernel, rows, operands)
                })
                .collect();
            for (job, got) in jobs.iter().zip(lane.run(&jobs).await.map_err(text)?) {
                same("x", got.words(0), &expected).map_err(of(&job.kernel))?;
            }
        }
    }
    Ok(lane.summary())
}

/// The angles that an embedding leaves for a decoded row, whoever gathers the row.
async fn decoded(lane: Rc<Lane>) -> Outcome {
    let (position, positions) = (3, 5);
    for (hidden, rotated) in [(32, 20), (32, 64), (320, 128)] {
        let plain = lane
            .variants_of(k::EmbeddingForward {
                hidden,
                rows: 1,
                format: WeightFormat::F32,
                rotated,
            })
            .map_err(text)?;
        let packed = lane.variants_of(EmbeddingForward {
            hidden,
            rows: PART.len(),
            format: WeightFormat::F16,
            rotated,
        });
        let tokens = [PART.start as u32 + 1];
        let weight = lane.normal(PART.len() * hidden);
        let words = pack_weights_forward(WeightFormat::F16, &weight);
        let table = lane.normal(positions * rotated);
        let expected: Vec<u32> =
            table[position * rotated..][..rotated].iter().map(|x| x.to_bits()).collect();
        let step = Step { position: position as u32, ..Step::of(1) };
        let job = |kernel: &Kernel, rows: Operand| {
            let operands = vec![
                Operand::words(&tokens),
                rows,
                Operand::poison(hidden),
                Operand::uniform(&step),
                Operand::range(0, 1, PART.start, PART.len()),
                Operand::poison(rotated),
                Operand::floats(&table),
            ];
            Job::new(kernel, 1, operands)
        };
        let plain = plain.iter().map(|kernel| job(kernel, Operand::floats(&weight)));
        let packed = packed.map_err(text)?;
        let packed = packed.iter().map(|kernel| job(kernel, Operand::words(&words)));
        let jobs: Vec<_> = plain.chain(packed).collect();
        for (job, got) in jobs.iter().zip(lane.run(&jobs).await.map_err(text)?) {
            same("angles", got.words(1), &expected).map_err(of(&job.kernel))?;
        }
    }
    Ok(lane.summary())
}

/// Rows of a packed part: its last group of scales is not full where rows are odd.
async fn from_packed(lane: Rc<Lane>, format: WeightFormat) -> Outcome {
    for (hidden, part) in [(32, 17..18), (96, 17..46), (160, 0..VOCABULARY)] {
        let kernels =
            lane.variants_of(k::EmbeddingForward { hidden, rows: part.len(), format, rotated: 0 });
        let made = kernels.map_err(text)?;
        for rows in [1, 67] {
            let tokens = lane.integers(rows, VOCABULARY);
            let mut words = pack_weights_forward(format, &lane.normal(part.len() * hidden));
            // Whole vectors, as buffers have them: the last scales are out of bounds otherwise.
            words.resize(format.bytes(part.len(), hidden) as usize / 4, 0);
            let table = unpack_weights_forward(format, &words, part.len() * hidden);
            let before = lane.normal(rows * hidden);
            let mut expected = wide(&before);
            for (row, &token) in expected.chunks_exact_mut(hidden).zip(&tokens) {
                if part.contains(&(token as usize)) {
                    let at = (token as usize - part.start) * hidden;
                    row.copy_from_slice(&table[at..at + hidden]);
                }
            }
            let operands = vec![
                Operand::words(&tokens),
                Operand::words(&words),
                Operand::floats(&before),
                Operand::uniform(&Step::of(rows)),
                Operand::range(0, rows, part.start, part.len()),
            ];
            let jobs: Vec<_> =
                made.iter().map(|kernel| Job::new(kernel, rows, operands.clone())).collect();
            for (job, got) in jobs.iter().zip(lane.run(&jobs).await.map_err(text)?) {
                close("x", &got.floats(0), &expected, ROUNDING).map_err(of(&job.kernel))?;
            }
        }
    }
    Ok(lane.summary())
}

async fn backward(lane: Rc<Lane>) -> Outcome {
    for (hidden, padding) in [(1, None), (37, None), (37, Some(PART.start + 2))] {
        let made = lane.variants_of(k::EmbeddingBackward { hidden, padding }).map_err(text)?;
        for (rows, bound) in [(1, VOCABULARY), (67, VOCABULARY), (130, 20)] {
            let tokens = lane.integers(rows, bound);
            let d_output = lane.normal(rows * hidden);
            let before = lane.normal(PART.len() * hidden);
            let whole =
                embedding_backward(&tokens, &wide(&d_output), [hidden, VOCABULARY], padding);
            let own = &whole[PART.start * hidden..PART.end * hidden];
            let expected: Vec<f64> =
                own.iter().zip(&before).map(|(d, &b)| d + f64::from(b)).collect();
            let jobs: Vec<_> = made
                .iter()
                .map(|kernel| {
                    let operands = vec![
                        Operand::words(&sorted_by_token(&tokens)),
                        Operand::words(&tokens),
                        Operand::floats(&d_output),
                        Operand::floats(&before),
                        Operand::uniform(&Step::of(rows)),
                        Operand::range(0, rows, PART.start, PART.len()),
                    ];
                    Job::new(kernel, rows, operands)
                })
                .collect();
            let got = lane.run(&jobs).await.map_err(text)?;
            for (job, got) in jobs.iter().zip(&got) {
                let named = of(&job.kernel);
                close("d_weight", &got.floats(0), &expected, ROUNDING).map_err(&named)?;
                if padding.is_none() {
                    differences(&lane, &got.floats(0), &before, &tokens, &wide(&d_output), hidden)
                        .map_err(&named)?;
                }
            }
            // One owner and one order of addition an element: every variant gives the same bits,
            // and so does the same one again.
            let again = lane.run(&jobs).await.map_err(text)?;
            for (job, got) in jobs.iter().cycle().zip(again.iter().chain(&got)) {
                same("bits", got.words(0), again[0].words(0)).map_err(of(&job.kernel))?;
            }
        }
    }
    Ok(lane.summary())
}

fn differences(
    lane: &Lane,
    d_weight: &[f32],
    before: &[f32],
    tokens: &[u32],
    d_output: &[f64],
    hidden: usize,
) -> Result<(), String> {
    let own: Vec<f32> = d_weight.iter().zip(before).map(|(d, b)| d - b).collect();
    let part = wide(&lane.normal(own.len()));
    directional("d_weight", &own, &part, &lane.normal(own.len()), |part| {
        let mut weight = vec![0.0; VOCABULARY * hidden];
        weight[PART.start * hidden..PART.end * hidden].copy_from_slice(part);
        dot(&embedding_forward(tokens, &weight, hidden), d_output)
    })
}

/// Positions of a table: more than a batch of 67 rows after 13 others reaches.
const POSITIONS: usize = 83;

/// Rows whose position is in another part of the table stay as they were.
async fn positions(lane: Rc<Lane>) -> Outcome {
    for hidden in [1, 5, 40] {
        let made = lane.variants_of(k::PositionForward { hidden }).map_err(text)?;
        for (rows, position) in [(1, 0), (67, 0), (1, 30), (67, 13)] {
            let documents = if position > 0 { vec![0; rows] } else { lane.documents(rows) };
            let (weight, before) = (lane.normal(POSITIONS * hidden), lane.normal(rows * hidden));
            // Adding nothing changes no bit.
            let mut part = vec![0.0; weight.len()];
            let own = PART.start * hidden..PART.end * hidden;
            part[own.clone()].copy_from_slice(&weight[own.clone()]);
            let mut expected = before.clone();
            position_forward(&mut expected, &part, &documents, position, hidden);
            let expected = Operand::floats(&expected);
            let step = Step { position: position as u32, ..Step::of(rows) };
            let operands = vec![
                Operand::floats(&before),
                Operand::floats(&weight[own]),
                Operand::words(&documents),
                Operand::uniform(&step),
                Operand::range(0, rows, PART.start, PART.len()),
            ];
            let jobs: Vec<_> =
                made.iter().map(|kernel| Job::new(kernel, rows, operands.clone())).collect();
            for (job, got) in jobs.iter().zip(lane.run(&jobs).await.map_err(text)?) {
                same("x", got.words(0), expected.contents()).map_err(of(&job.kernel))?;
            }
        }
    }
    Ok(lane.summary())
}

async fn positions_backward(lane: Rc<Lane>) -> Outcome {
    for hidden in [1, 37] {
        for rows in [1, 67, 130] {
            let ends = rows + 3;
            let made = lane.variants_of(k::PositionBackward { hidden, ends }).map_err(text)?;
            let documents = lane.documents(rows);
            let d_output = lane.normal(rows * hidden);
            let before = lane.normal(PART.len() * hidden);
            let whole = position_backward(&documents, &wide(&d_output), hidden, rows.max(PART.end));
            let own = &whole[PART.start * hidden..PART.end * hidden];
            let expected: Vec<f64> =
                own.iter().zip(&before).map(|(d, &b)| d + f64::from(b)).collect();
            let mut words = documents.clone();
            words.resize(2 * ends, 0);
            write_document_ends(&documents, &mut words[ends..ends + rows]);
            let operands = vec![
                Operand::words(&words),
                Operand::floats(&d_output),
                Operand::floats(&before),
                Operand::uniform(&Step::of(rows)),
                Operand::range(0, rows, PART.start, PART.len()),
            ];
            let jobs: Vec<_> =
                made.iter().map(|kernel| Job::new(kernel, rows, operands.clone())).collect();
            let got = lane.run(&jobs).await.map_err(text)?;
            for (job, got) in jobs.iter().zip(&got) {
                let named = of(&job.kernel);
                close("d_weight", &got.floats(0), &expected, ROUNDING).map_err(&named)?;
                let gradient: Vec<f32> =
                    got.floats(0).iter().zip(&before).map(|(d, b)| d - b).collect();
                let (part, direction) =
                    (wide(&lane.normal(gradient.len())), lane.normal(gradient.len()));
                directional("d_weight", &gradient, &part, &direction, |part| {
                    let mut weight = vec![0.0; rows.max(PART.end) * hidden];
                    weight[PART.start * hidden..PART.end * hidden].copy_from_slice(part);
                    let mut x = vec![0.0; rows * hidden];
                    position_forward(&mut x, &weight, &documents, 0, hidden);
                    dot(&x, &wide(&d_output))
                })
                .map_err(&named)?;
            }
        }
    }
    Ok(lane.summary())
}
