//! An adapter's products: of one module and of several, with rows of fours and odd ones, in f16 too.

use super::twin::{low_rank_product, low_rank_weights};
use super::{LowRankModule, LowRankProduct, LowRankShape, LowRankSide, LowRankWeights};
use crate::arch::LowRankGroup;
use crate::caps::Capabilities;
use crate::kernels::{Constant, Element, Spec, WriteMode};
use crate::testing::catalogue::Entry;
use crate::testing::harness::{Operand, Step, in_halves, jobs};
use crate::testing::lane::Lane;
use crate::testing::measure::{ROUNDING, close_to_terms, of, text, wide};
use crate::testing::{Case, Outcome};
use half::f16;
use std::rc::Rc;

const SIDES: [(LowRankSide, bool, &str); 4] = [
    (LowRankSide::A, false, "short rows"),
    (LowRankSide::B, false, "wide rows"),
    (LowRankSide::B, true, "gradients of short rows"),
    (LowRankSide::A, true, "gradients of wide rows"),
];

pub(crate) fn cases() -> Vec<Case> {
    let product = |(side, backward, name): (LowRankSide, bool, &str)| {
        Case::new(format!("low rank: {name}"), move |lane| product(lane, side, backward))
    };
    let mut cases: Vec<Case> = SIDES.map(product).into();
    cases.push(Case::new("low rank: gradients of matrices", gradients));
    cases
}

/// Modules of these widths, with `gap` columns between them and before the first that no module has.
pub(crate) fn shape(rank: usize, inputs: usize, widths: &[usize], gap: usize) -> LowRankShape {
    let mut modules = [LowRankModule::default(); LowRankGroup::MOST];
    let (mut column, mut at) = (gap, 0);
    for (index, (module, &columns)) in modules.iter_mut().zip(widths).enumerate() {
        let (a, b) = (at, at + (rank * inputs).next_multiple_of(16));
        *module = LowRankModule { short: index * rank, column, columns, a, b };
        column += columns + gap;
        at = b + (rank * columns).next_multiple_of(16);
    }
    let (short, count) = (widths.len() * rank, widths.len());
    LowRankShape { rank, inputs, outputs: column, short, count, modules }
}

/// Elements up to the end of a shape's matrices, and a few more.
pub(crate) fn matrices(shape: &LowRankShape) -> usize {
    let end =
        |of: &LowRankModule| (of.a + shape.rank * shape.inputs).max(of.b + shape.rank * of.columns);
    shape.modules().iter().map(end).max().unwrap_or(0).next_multiple_of(4) + 4
}

/// Of the sizes of the shapes that run, between them: every number of modules, sums of one invocation and of many, more
/// short columns than a workgroup has, odd sizes, columns that no module has, and one part of a module alone.
fn shapes() -> Vec<LowRankShape> {
    let part = shape(8, 68, &[36], 4);
    let [mut module, ..] = part.modules;
    module.short = 4;
    let part =
        LowRankShape { short: 16, modules: [module, part.modules[1], part.modules[2]], ..part };
    vec![
        shape(16, 136, &[132, 64, 64], 0),
        shape(20, 260, &[40, 72], 12),
        shape(3, 67, &[130, 9], 2),
        part,
    ]
}

pub(crate) fn examples(caps: &Capabilities) -> Vec<Entry> {
    let large = [shape(16, 1024, &[2048, 1024, 1024], 0), shape(64, 4096, &[14_336, 14_336], 0)];
    let mut entries = vec![];
    for (index, shape) in shapes().into_iter().chain(large).enumerate() {
        for rows in [Element::F32, Element::F16] {
            if rows == Element::F16 && !shape.by_fours() {
                continue;
            }
            for (side, backward, name) in SIDES {
                for mode in [WriteMode::Overwrite, WriteMode::Add] {
                    let scale = Constant(if mode == WriteMode::Add { 1.0 } else { 2.0 });
                    let spec = LowRankProduct { shape, side, backward, scale, mode, rows };
                    let what = format!("{name} of low rank, shape {index}, {rows:?}, {mode:?}");
                    entries.push((what, spec.kernel(caps)));
                }
            }
            for only in [None, Some(LowRankSide::A), Some(LowRankSide::B)] {
                let mode = WriteMode::AddAfterFirst;
                let spec = LowRankWeights { shape, only, mode, rows: [rows, Element::F32] };
                let what = format!("gradients of low rank, shape {index}, {rows:?}, {only:?}");
                entries.push((what, spec.kernel(caps)));
            }
        }
    }
    entries
}

/// Rows as an operand in a format, and the numbers that it has then.
fn lying(rows: Vec<f32>, element: Element) -> (Operand, Vec<f64>) {
    match element {
        Element::F32 => (Operand::floats(&rows), wide(&rows)),
        Element::F16 => {
            let words = in_halves(&rows);
            let rounded = rows.iter().map(|x| f16::from_f32(*x).to_f64()).collect();
            (Operand::words(&words), rounded)
        }
    }
}

/// The formats of rows that run: both of one shape.
fn formats(shape: &LowRankShape) -> &'static [Element] {
    if shape.count == 3 { &[Element::F32, Element::F16] } else { &[Element::F32] }
}

/// What a result was before, and what is expected of it: elements are overwritten or added to, and all others stay.
fn expected(before: &mut [f32], elements: &[(usize, f64)], adds: bool) -> (Vec<f64>, Vec<f64>) {
    let mut all = wide(before);
    let mut terms: Vec<f64> = all.iter().map(|x| x.abs()).collect();
    for &(at, x) in elements {
        if adds {
            all[at] += x;
        } else {
            all[at] = x;
            before[at] = f32::NAN;
        }
        // Sums of normal numbers cancel.
        terms[at] += x.abs() + 1.0;
    }
    (all, terms)
}

async fn product(lane: Rc<Lane>, side: LowRankSide, backward: bool) -> Outcome {
    for shape in shapes() {
        for &rows in formats(&shape) {
            // As plans write them: all but these kernels' first results are added to.
            let adds = (side == LowRankSide::A) == backward;
            let mode = if adds { WriteMode::Add } else { WriteMode::Overwrite };
            let scale = Constant(if adds { 1.0 } else { 2.5 });
            let spec = LowRankProduct { shape, side, backward, scale, mode, rows };
            one_product(&lane, spec).await?;
        }
    }
    Ok(lane.summary())
}

async fn one_product(lane: &Lane, spec: LowRankProduct) -> Result<(), String> {
    let [row, result] = spec.strides();
    let made = lane.variants_of(spec).map_err(text)?;
    let weights = lane.normal(matrices(&spec.shape));
    for tokens in [1, 23] {
        let (rows, values) = lying(lane.normal(tokens * row), spec.rows);
        let mut before = lane.normal((tokens + 3) * result);
        let elements = low_rank_product(&spec, &values, &wide(&weights), tokens);
        let (all, terms) = expected(&mut before, &elements, spec.mode == WriteMode::Add);
        let operands = [
            rows,
            Operand::floats(&weights),
            Operand::floats(&before),
            Operand::uniform(&Step::of(tokens)),
        ];
        let jobs = jobs(&made, tokens, &operands);
        for (job, got) in jobs.iter().zip(lane.run(&jobs).await.map_err(text)?) {
            close_to_terms("result", &got.floats(0), &all, &terms, ROUNDING)
                .map_err(of(&job.kernel))?;
        }
    }
    Ok(())
}

async fn gradients(lane: Rc<Lane>) -> Outcome {
    const FIRST: WriteMode = WriteMode::AddAfterFirst;
    for (index, shape) in shapes().into_iter().enumerate() {
        let of = |only, mode, rows| LowRankWeights { shape, only, mode, rows };
        let whole = [Element::F32; 2];
        one_gradient(&lane, of(None, FIRST, whole), index == 2).await?;
        if index == 0 {
            for rows in [[Element::F16, Element::F32], [Element::F32, Element::F16]] {
                one_gradient(&lane, of(None, FIRST, rows), false).await?;
            }
        }
        if index == 3 {
            one_gradient(&lane, of(Some(LowRankSide::A), FIRST, whole), true).await?;
            one_gradient(&lane, of(Some(LowRankSide::B), WriteMode::Add, whole), false).await?;
        }
    }
    Ok(lane.summary())
}

async fn one_gradient(lane: &Lane, spec: LowRankWeights, later: bool) -> Result<(), String> {
    let shape = spec.shape;
    let made = lane.variants_of(spec).map_err(text)?;
    for tokens in [1, 137] {
        let row = |columns: usize| lane.normal(tokens * columns);
        let (x, x_values) = lying(row(shape.inputs), spec.rows[0]);
        let (d_y, d_y_values) = lying(row(shape.outputs), spec.rows[1]);
        let (d_z, z) = (row(shape.short), row(shape.short));
        let mut before = lane.normal(matrices(&shape));
        let (wide_d_z, wide_z) = (wide(&d_z), wide(&z));
        let values = [&*x_values, &*wide_d_z, &*d_y_values, &*wide_z];
        let elements = low_rank_weights(&spec, values, tokens);
        let adds = spec.mode == WriteMode::Add || later;
        let (all, terms) = expected(&mut before, &elements, adds);
        let step = Step { accumulate: u32::from(later), ..Step::of(tokens) };
        let operands = [
            x,
            Operand::floats(&d_z),
            d_y,
            Operand::floats(&z),
            Operand::floats(&before),
            Operand::uniform(&step),
        ];
        let jobs = jobs(&made, tokens, &operands);
        for (job, got) in jobs.iter().zip(lane.run(&jobs).await.map_err(text)?) {
            close_to_terms("gradients", &got.floats(0), &all, &terms, ROUNDING)
                .map_err(of(&job.kernel))?;
        }
    }
    Ok(())
}
