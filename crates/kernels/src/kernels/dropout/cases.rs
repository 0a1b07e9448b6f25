//! Dropout.

use super::DropoutForward;
use super::twin::{Masks, dropout_forward};
use crate::caps::Capabilities;
use crate::kernels::{Constant, Spec, WriteMode};
use crate::random::split;
use crate::testing::catalogue::Entry;
use crate::testing::harness::{Operand, Step, jobs};
use crate::testing::lane::Lane;
use crate::testing::measure::{ROUNDING, close, of, same, text};
use crate::testing::{Case, Outcome};
use std::rc::Rc;

pub(crate) fn cases() -> Vec<Case> {
    vec![
        Case::new("dropout", |lane| dropout(lane, false)),
        Case::new("dropout and a sum", |lane| dropout(lane, true)),
    ]
}

pub(crate) fn examples(caps: &Capabilities) -> Vec<Entry> {
    let mut entries = vec![];
    for columns in [1, 61, 768] {
        for (mode, residual) in [(WriteMode::Add, false), (WriteMode::Overwrite, true)] {
            let what = if residual { "dropout and a sum" } else { "dropout" };
            let kernel =
                DropoutForward { columns, rate: Constant(0.1), mode, residual }.kernel(caps);
            entries.push((format!("{what} of {columns}"), kernel));
        }
    }
    entries
}

/// The twin's bits where it overwrites. Rows after the batch stay as they were.
async fn dropout(lane: Rc<Lane>, residual: bool) -> Outcome {
    let (seed, micro_step, place) = (split(lane.seed), 77, 3);
    let masks = Masks { seed, micro_step };
    let range = Operand::uniform(&[0u32, 9, place, 0]);
    for columns in [1, 16, 77] {
        let modes = [(0.2, WriteMode::Overwrite), (0.5, WriteMode::Add)];
        for &(rate, mode) in if residual { &modes[..1] } else { &modes } {
            let spec = DropoutForward { columns, rate: Constant(rate), mode, residual };
            let made = lane.variants_of(spec).map_err(text)?;
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
