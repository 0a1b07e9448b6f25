//! Interventions.

use super::twin::intervene_forward;
use super::{
    InterveneForward, InterventionEntry, InterventionKind, InterventionLayout, MOST_INTERVENTIONS,
};
use crate::caps::Capabilities;
use crate::kernels::Spec;
use crate::testing::catalogue::Entry;
use crate::testing::harness::{Operand, Step, jobs};
use crate::testing::lane::Lane;
use crate::testing::measure::{ROUNDING, close, of, same, text, wide};
use crate::testing::{Case, Outcome};
use std::rc::Rc;

pub(crate) fn cases() -> Vec<Case> {
    vec![
        Case::new("interventions in place", |lane| interventions(lane, false)),
        Case::new("interventions and a sum", |lane| interventions(lane, true)),
    ]
}

pub(crate) fn examples(caps: &Capabilities) -> Vec<Entry> {
    let mut entries = vec![];
    for columns in [1, 61, 768] {
        for residual in [false, true] {
            let layout = InterventionLayout::new(2, columns);
            let what = if residual { "interventions and a sum" } else { "interventions" };
            let kernel = InterveneForward { columns, residual, layout }.kernel(caps);
            entries.push((format!("{what} of {columns}"), kernel));
        }
    }
    entries
}

/// The site of the cases, and another whose interventions must not show.
const SITES: [usize; 2] = [5, 2];

/// Numbers of some interventions of each kind, over parts of rows and of positions.
fn operand(lane: &Lane, columns: usize, layout: InterventionLayout) -> Vec<u32> {
    use InterventionKind::{Add, Project, Scale, Set};
    let mut words = vec![0u32; layout.words];
    let half = columns.div_ceil(2);
    let part = (columns / 3, columns - columns / 3);
    let all = (0, u32::MAX);
    let mut entries = vec![(Scale, all, (0, columns), 7.0)];
    words[2 * SITES[1]..2 * SITES[1] + 2].copy_from_slice(&[0, 1]);
    entries.extend([
        (Add, (1, 3), (0, columns), 0.5),
        (Scale, all, part, -1.5),
        (Project, (0, 4), (0, half), -0.25),
        (Set, (3, 1), part, 1.0),
        (Add, all, part, 2.0),
        (Scale, (5, 1), (0, half), 0.0),
        (Project, all, (0, columns), 0.125),
    ]);
    words[2 * SITES[0]..2 * SITES[0] + 2].copy_from_slice(&[1, entries.len() as u32 - 1]);
    let mut next = layout.vectors;
    for (index, (kind, (first, count), (column, width), factor)) in entries.iter().enumerate() {
        let entry = InterventionEntry {
            kind: *kind as u32,
            first_position: *first,
            positions: *count,
            vector: next as u32,
            first_column: *column as u32,
            columns: *width as u32,
            factor: *factor,
            reserved: 0,
        };
        words[layout.entries + 8 * index..][..8].copy_from_slice(bytemuck::cast_slice(&[entry]));
        for value in lane.normal(*width) {
            words[next] = value.to_bits();
            next += 1;
        }
    }
    assert!(entries.len() <= MOST_INTERVENTIONS, "room for all of them");
    words
}

/// Rows of a chunk after others, and of documents. Rows after the batch stay as they were.
async fn interventions(lane: Rc<Lane>, residual: bool) -> Outcome {
    for columns in [1, 16, 77, 300] {
        let layout = InterventionLayout::new(2, columns);
        let spec = InterveneForward { columns, residual, layout };
        let made = lane.variants_of(spec).map_err(text)?;
        let words = operand(&lane, columns, layout);
        for (rows, position) in [(1, 3), (9, 0), (9, 2)] {
            let before = lane.normal(10 * columns);
            let added = lane.normal(10 * columns);
            let documents: Vec<u32> = (0..10).map(|t| if t < 4 { 0 } else { 4 }).collect();
            let step = Step { position: position as u32, ..Step::of(rows) };
            let mut expected = wide(&before[..rows * columns]);
            for (t, row) in expected.chunks_exact_mut(columns).enumerate() {
                let at = (position + t) as u32 - documents[t];
                intervene_forward(row, &words, layout, (SITES[0], at));
            }
            let mut operands = vec![
                Operand::floats(&before),
                Operand::words(&documents),
                Operand::words(&words),
                Operand::uniform(&step),
                Operand::range(0, rows, SITES[0], 0),
            ];
            if residual {
                operands.extend([Operand::floats(&added), Operand::poison(10 * columns)]);
            }
            let sums: Vec<f64> =
                expected.iter().zip(&added).map(|(x, &y)| x + f64::from(y)).collect();
            let jobs = jobs(&made, rows, &operands);
            for (job, got) in jobs.iter().zip(lane.run(&jobs).await.map_err(text)?) {
                let named = of(&job.kernel);
                let x = got.floats(0);
                close("rows", &x[..rows * columns], &expected, ROUNDING).map_err(&named)?;
                let behind = &Operand::floats(&before).contents()[rows * columns..].to_vec();
                same("rows behind", &got.words(0)[rows * columns..], behind).map_err(&named)?;
                if residual {
                    let sum = &got.floats(1)[..rows * columns];
                    close("sums", sum, &sums, ROUNDING).map_err(&named)?;
                }
            }
        }
    }
    Ok(lane.summary())
}
