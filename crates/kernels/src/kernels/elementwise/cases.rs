//! Family 00: helpers.

use super::twin::{checksum_forward, scale_forward};
use super::{CHECKSUM_LANES, CaptureForward, Checksum, CopyRow, InitializeForward, Scale, Zero};
use crate::caps::Capabilities;
use crate::kernels::{Constant, Spec};
use crate::plan::Initialize as Options;
use crate::random::fill_weights;
use crate::testing::catalogue::Entry;
use crate::testing::harness::{Operand, Step, jobs};
use crate::testing::lane::Lane;
use crate::testing::measure::{of, same, text};
use crate::testing::{Case, Outcome};
use std::rc::Rc;

pub(crate) fn cases() -> Vec<Case> {
    vec![
        Case::new("initialize", initialize),
        Case::new("zero", zero),
        Case::new("copy_row", copy_row),
        Case::new("scale", scale),
        Case::new("capture", capture),
        Case::new("checksum", checksum),
    ]
}

pub(crate) fn examples(caps: &Capabilities) -> Vec<Entry> {
    let mut entries = vec![];
    for width in [1, 61, 768] {
        let mut add = |what: &str, kernel| entries.push((format!("{what} of {width}"), kernel));
        add("initialize", InitializeForward { count: width * 100_000 }.kernel(caps));
        add("zero", Zero { count: width * 100_000 }.kernel(caps));
        add("copy", CopyRow { hidden: width }.kernel(caps));
        add("scale", Scale { columns: width, factor: Constant(0.5) }.kernel(caps));
        let (stride, factor) = (width + 3, Constant(0.5));
        let capture = CaptureForward { stride, first: 2, columns: width, factor };
        add("capture", capture.kernel(caps));
        add("checksum", Checksum { count: width * 100_000 }.kernel(caps));
    }
    entries
}

/// The host's bits, in a run inside a shard. What is around it stays.
async fn initialize(lane: Rc<Lane>) -> Outcome {
    let (seed, stream, index, first) = (lane.seed, 5, 1000, 3);
    for (count, std) in [(1, 0.02), (257, 1.0), (5000, 0.3)] {
        let made = lane.variants_of(InitializeForward { count }).map_err(text)?;
        let before = lane.normal(first + count + 2);
        let mut expected = before.clone();
        fill_weights(seed, stream, index, std, &mut expected[first..first + count]);
        let operands = [
            Operand::floats(&before),
            Operand::uniform(&Options::new(seed, std)),
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
        let made = lane.variants_of(Zero { count }).map_err(text)?;
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
        let made = lane.variants_of(CopyRow { hidden }).map_err(text)?;
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
        let made = lane.variants_of(Checksum { count }).map_err(text)?;
        let words = Operand::floats(&lane.normal(count));
        let expected = checksum_forward(words.contents(), CHECKSUM_LANES);
        let jobs = jobs(&made, 1, &[words, Operand::poison(CHECKSUM_LANES)]);
        for (job, got) in jobs.iter().zip(lane.run(&jobs).await.map_err(text)?) {
            same("sums", got.words(0), &expected).map_err(of(&job.kernel))?;
        }
    }
    Ok(lane.summary())
}

/// Rows of a chunk after others. What is before and after them stays.
async fn capture(lane: Rc<Lane>) -> Outcome {
    for (stride, first, columns) in [(5, 0, 5), (48, 16, 16), (77, 70, 7)] {
        let spec = CaptureForward { stride, first, columns, factor: Constant(0.5) };
        let made = lane.variants_of(spec).map_err(text)?;
        for (position, rows) in [(0, 9), (4, 1), (3, 5)] {
            let x = lane.normal(rows * stride);
            let before = lane.normal(10 * columns);
            let mut expected = before.clone();
            for (t, row) in x.chunks_exact(stride).enumerate() {
                let own = &mut expected[(position + t) * columns..][..columns];
                own.iter_mut().zip(&row[first..]).for_each(|(y, x)| *y = 0.5 * x);
            }
            let step = Step { position: position as u32, ..Step::of(rows) };
            let operands = [Operand::floats(&x), Operand::floats(&before), Operand::uniform(&step)];
            let jobs = jobs(&made, rows, &operands);
            for (job, got) in jobs.iter().zip(lane.run(&jobs).await.map_err(text)?) {
                let expected = Operand::floats(&expected);
                same("rows", got.words(0), expected.contents()).map_err(of(&job.kernel))?;
            }
        }
    }
    Ok(lane.summary())
}

/// Rows of the batch alone: what follows them stays.
async fn scale(lane: Rc<Lane>) -> Outcome {
    for columns in [1, 16, 77] {
        for factor in [2.0, 0.1] {
            let made =
                lane.variants_of(Scale { columns, factor: Constant(factor) }).map_err(text)?;
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
