//! Family 03: gradients of several weights from what products split along K have left.

use crate::kernels::{GradientParts, GradientSums, WriteMode};
use crate::testing::harness::{Job, Operand, Step};
use crate::testing::lane::Lane;
use crate::testing::measure::{ROUNDING, close_to_terms, of, text, wide};
use crate::testing::{Case, Outcome};
use std::rc::Rc;

pub(crate) fn cases() -> Vec<Case> {
    vec![Case::new("gradient_sum", gradient_sum)]
}

/// Gradients in the opposite order of their parts, with numbers between all of them that are no part of any.
const MANY: [GradientParts; 4] = [
    GradientParts { elements: 4, count: 2, places: [4, 9000] },
    GradientParts { elements: 1028, count: 3, places: [64, 4100] },
    GradientParts { elements: 2304, count: 8, places: [3200, 1000] },
    GradientParts { elements: 260, count: 5, places: [21_700, 8] },
];

async fn gradient_sum(lane: Rc<Lane>) -> Outcome {
    for count in [1, 3, 4] {
        for (mode, later) in [
            (WriteMode::Overwrite, true),
            (WriteMode::AddAfterFirst, false),
            (WriteMode::AddAfterFirst, true),
            (WriteMode::Add, false),
        ] {
            let adds = mode == WriteMode::Add || (mode == WriteMode::AddAfterFirst && later);
            let sums = GradientSums { mode, count, each: MANY };
            one(&lane, sums, (u32::from(later), adds)).await?;
        }
    }
    Ok(lane.summary())
}

async fn one(
    lane: &Lane,
    sums: GradientSums,
    (accumulate, adds): (u32, bool),
) -> Result<(), String> {
    let made = lane.variants_of(sums).map_err(text)?;
    let parts = lane.normal(23_000);
    let mut before = lane.normal(9004);
    let mut expected = wide(&before);
    let mut terms = vec![0.0; before.len()];
    for GradientParts { elements, count, places: [from, to] } in &sums.each[..sums.count] {
        for i in 0..*elements {
            let of = || (0..*count).map(|part| f64::from(parts[from + part * elements + i]));
            terms[to + i] = of().map(|part| part * part).sum::<f64>().sqrt();
            let sum: f64 = of().sum();
            if adds {
                terms[to + i] += expected[to + i].abs();
                expected[to + i] += sum;
            } else {
                expected[to + i] = sum;
                before[to + i] = f32::NAN;
            }
        }
    }
    let step = Step { accumulate, ..Step::of(1) };
    let operands = || {
        let (parts, before) = (Operand::floats(&parts), Operand::floats(&before));
        vec![parts, before, Operand::uniform(&step)]
    };
    let jobs: Vec<_> = made.iter().map(|kernel| Job::new(kernel, 1, operands())).collect();
    for (job, got) in jobs.iter().zip(lane.run(&jobs).await.map_err(text)?) {
        close_to_terms("gradients", &got.floats(0), &expected, &terms, ROUNDING)
            .map_err(of(&job.kernel))?;
    }
    Ok(())
}
