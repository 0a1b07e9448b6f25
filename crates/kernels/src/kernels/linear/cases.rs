//! Family 03: the three products in every tile.

mod adapted;
mod examples;
mod gate_gradient;
mod gated;
mod gradient;
pub(crate) mod matvec;
mod run;
pub(crate) mod several;

pub(crate) use examples::examples;

use crate::caps::Capabilities;
use crate::error::{Error, Result};
use crate::kernels::attention::cases::matrix_forward::HALF;
use crate::kernels::linear::cases::run::{Run, SPLITS};
use crate::kernels::{
    self as k, Element, Form, Kernel, LinearProduct, LinearShape, LinearTile, Output, Spec,
    WeightFormat, WriteMode,
};
use crate::testing::harness::{Job, Outputs, POISON};
use crate::testing::lane::Lane;
use crate::testing::measure::{ROUNDING, close, forbid, of, text};
use crate::testing::{Case, Outcome};
use std::rc::Rc;

pub(crate) fn cases() -> Vec<Case> {
    let mut cases: Vec<Case> = Form::ALL
        .into_iter()
        .flat_map(|form| {
            RowLengths::ALL.into_iter().flat_map(move |rows| {
                [false, true].map(|half| {
                    let by = if half { " by matrices" } else { "" };
                    let name = format!("linear {} {}{by}", form.name(), rows.name());
                    Case::new(name, move |lane| product(lane, form, rows, half))
                })
            })
        })
        .collect();
    for form in [Form::MatmulT, Form::Matmul] {
        for format in WeightFormat::ALL.into_iter().filter(|format| *format != WeightFormat::F32) {
            for half in [false, true] {
                let by = if half { " by matrices" } else { "" };
                let name = format!("linear {} with b in {}{by}", form.name(), format.name());
                cases.push(Case::new(name, move |lane| packed(lane, form, format, half)));
            }
        }
    }
    cases.extend(Form::ALL.map(|form| {
        let name = format!("linear {} with a in f16 by matrices", form.name());
        Case::new(name, move |lane| halves(lane, form))
    }));
    cases.extend(
        [
            adapted::cases(),
            gate_gradient::cases(),
            gated::cases(),
            gradient::cases(),
            matvec::cases(),
            several::cases(),
        ]
        .into_iter()
        .flatten(),
    );
    cases
}

/// What the lengths of rows are.
#[derive(Clone, Copy, PartialEq)]
enum RowLengths {
    Fours,
    Odd,
    /// The matrix's rows are odd, and the rows that have them as columns are padded.
    Padded,
}

impl RowLengths {
    const ALL: [Self; 3] = [Self::Fours, Self::Odd, Self::Padded];

    fn name(self) -> &'static str {
        match self {
            Self::Fours => "rows of fours",
            Self::Odd => "odd rows",
            Self::Padded => "padded rows",
        }
    }
}

/// The ways in which plans write a product of this form.
fn outputs(form: Form) -> &'static [Output] {
    const OVERWRITE: Output = Output::Mode(WriteMode::Overwrite);
    const ADD: Output = Output::Mode(WriteMode::Add);
    match form {
        Form::MatmulT => &[OVERWRITE, Output::Residual, Output::Bias, Output::BiasedResidual, ADD],
        Form::Matmul => &[OVERWRITE, ADD],
        Form::MatmulAt => &[Output::Mode(WriteMode::AddAfterFirst), ADD],
    }
}

/// One past the largest tile in the outer constant dimension. Operands of the first output, and of one
/// with a bias, are slices of wider rows, as parts of a sharded matrix are, and their K takes several
/// steps, in each part of a split one too: whole ones where rows are of fours. The others' K is short and
/// ends within a step.
fn shape(form: Form, rows: RowLengths, wide: bool) -> LinearShape {
    // `more`: columns that a row of C, or of A, has beside N, or K. The matrix's rows are N, and K of `Matmul`;
    // `MatmulAt` exchanges the two.
    let by_k = form == Form::Matmul;
    let (n, k, more) = match (rows, wide) {
        (RowLengths::Fours, true) => (132, 96, 8),
        (RowLengths::Fours, false) => (132, 20, 0),
        (RowLengths::Odd, true) => (131, 83, 3),
        (RowLengths::Odd, false) => (131, 19, 0),
        (RowLengths::Padded, true) if by_k => (132, 95, 9),
        (RowLengths::Padded, false) if by_k => (132, 19, 1),
        (RowLengths::Padded, true) => (130, 96, 10),
        (RowLengths::Padded, false) => (130, 20, 2),
    };
    let (n, k) = if form == Form::MatmulAt { (k + 112, n) } else { (n, k) };
    let shape = LinearShape::new(form, n, k, 192);
    let shape = LinearShape { padded: rows == RowLengths::Padded, ..shape };
    match form {
        Form::MatmulT => LinearShape { c_stride: n + more, ..shape },
        Form::Matmul | Form::MatmulAt => LinearShape { a_stride: k + more, ..shape },
    }
}

/// A product in every tile that a device may choose.
fn products(
    caps: &Capabilities,
    shape: &LinearShape,
    output: Output,
    splits: usize,
) -> Result<Vec<LinearProduct>> {
    if shape.half && caps.half_matrix().is_none() {
        return Err(Error::limit("subgroupMatrixConfigs", 0, 1, "a product by matrices"));
    }
    let tiles = k::linear_tiles(caps, shape);
    let tiles = tiles.into_iter();
    let fit = tiles.filter(|tile| splits == 1 || !matches!(tile, LinearTile::Direct { .. }));
    let product = |tile| LinearProduct { shape: *shape, output, splits, tile: Some(tile) };
    Ok(fit.map(product).collect())
}

async fn product(lane: Rc<Lane>, form: Form, rows: RowLengths, half: bool) -> Outcome {
    for (index, &output) in outputs(form).iter().enumerate() {
        let biased = matches!(output, Output::Bias | Output::BiasedResidual);
        let shape = LinearShape { half, ..shape(form, rows, index == 0 || biased) };
        let runs: Vec<Run> = [(1, 0, false), (129, 5, true)]
            .into_iter()
            .map(|(tokens, row0, later)| Run::new(&lane, shape, output, tokens, row0, later))
            .collect();
        let made = |splits: usize| {
            let make = |caps: &Capabilities| {
                let all = products(caps, &shape, output, splits)?;
                all.into_iter().map(|product| product.kernel(caps)).collect()
            };
            if half { lane.kernels_by_matrices(make) } else { lane.kernels(make) }
        };
        // All tiles once; what a product is added to does not depend on them.
        let whole = made(1).map_err(text)?;
        let most = if biased { 1 } else { 3 };
        for kernel in &whole[if index == 0 { 0 } else { whole.len().saturating_sub(most) }..] {
            let jobs: Vec<Job> = runs.iter().map(|run| run.job(kernel)).collect();
            check(&lane, &jobs, &runs).await?;
        }
        if !shape.by_vectors() {
            continue;
        }
        let sums = lane
            .kernels(|caps| {
                // The parts are added up alike, whatever made them.
                let all = products(caps, &LinearShape { half: false, ..shape }, output, SPLITS)?;
                all.iter().filter_map(LinearProduct::sum).map(|sum| sum.kernel(caps)).collect()
            })
            .map_err(text)?;
        let firsts = made(SPLITS).map_err(text)?;
        if sums.is_empty() && !firsts.is_empty() {
            return Err("no kernel sums the parts of a split product: nothing holds them".into());
        }
        for kernel in &firsts[if index == 0 { 0 } else { firsts.len().saturating_sub(1) }..] {
            let jobs: Vec<Job> = runs.iter().map(|run| run.parts_job(kernel)).collect();
            let parts = lane.run(&jobs).await.map_err(text)?;
            for sum in &sums {
                let jobs: Vec<Job> = runs
                    .iter()
                    .zip(&parts)
                    .map(|(run, parts)| run.sum_job(sum, parts.words(0)))
                    .collect();
                check(&lane, &jobs, &runs).await.map_err(of(kernel))?;
            }
        }
    }
    Ok(lane.summary())
}

/// The rows of a packed B are of whole groups, and so one of N and K is; the other is a multiple of four, or
/// odd as that of a head is whose vocabulary is.
fn packed_shape(form: Form, vectors: bool) -> LinearShape {
    let (rows, columns) = if vectors { (132, 96) } else { (131, 160) };
    match form {
        Form::MatmulT => {
            LinearShape { c_stride: rows + 8, ..LinearShape::new(form, rows, columns, 192) }
        }
        _ => LinearShape { a_stride: rows + 8, ..LinearShape::new(form, columns, rows, 192) },
    }
}

/// A product whose B is packed, in every tile.
async fn packed(lane: Rc<Lane>, form: Form, format: WeightFormat, half: bool) -> Outcome {
    let output = outputs(form)[0];
    for vectors in [true, false] {
        let shape = LinearShape { b: format, half, ..packed_shape(form, vectors) };
        let runs = [(1, 0, false), (129, 5, true)]
            .map(|(tokens, row0, later)| Run::new(&lane, shape, output, tokens, row0, later));
        let make = |caps: &Capabilities| {
            let all = products(caps, &shape, output, 1)?;
            all.into_iter().map(|product| product.kernel(caps)).collect()
        };
        let made = if half { lane.kernels_by_matrices(make) } else { lane.kernels(make) };
        let made = made.map_err(text)?;
        for kernel in &made {
            let jobs: Vec<Job> = runs.iter().map(|run| run.job(kernel)).collect();
            check(&lane, &jobs, &runs).await?;
        }
    }
    Ok(lane.summary())
}

/// A product by matrices of activations in f16: A, with `MatmulAt` also both or B alone. With the other forms C too, as
/// a whole and as the sum of parts.
async fn halves(lane: Rc<Lane>, form: Form) -> Outcome {
    let both = [(Element::F16, WeightFormat::F32), (Element::F16, WeightFormat::F16)];
    let alone = (Element::F32, WeightFormat::F16);
    let lie = if form == Form::MatmulAt { vec![both[0], both[1], alone] } else { both.to_vec() };
    for (a, b) in lie {
        let shape = LinearShape { a, b, half: true, ..shape(form, RowLengths::Fours, true) };
        let output = outputs(form)[0];
        let runs = [(1, 0, false), (129, 5, true)]
            .map(|(tokens, row0, later)| Run::new(&lane, shape, output, tokens, row0, later));
        let make = |caps: &Capabilities| {
            let all = products(caps, &shape, output, 1)?;
            all.into_iter().map(|product| product.kernel(caps)).collect()
        };
        for kernel in &lane.kernels_by_matrices(make).map_err(text)? {
            let jobs: Vec<Job> = runs.iter().map(|run| run.job(kernel)).collect();
            check(&lane, &jobs, &runs).await?;
        }
    }
    if form != Form::MatmulAt {
        results_in_halves(&lane, form).await?;
    }
    Ok(lane.summary())
}

/// A product by matrices with C in f16, as a whole and as the sum of parts.
async fn results_in_halves(lane: &Lane, form: Form) -> std::result::Result<(), String> {
    let shape = shape(form, RowLengths::Fours, true);
    let shape = LinearShape { c: Element::F16, half: true, ..shape };
    let output = outputs(form)[0];
    let runs = [(1, 0, false), (129, 5, true)]
        .map(|(tokens, row0, later)| Run::new(lane, shape, output, tokens, row0, later));
    let make = |caps: &Capabilities, splits: usize| products(caps, &shape, output, splits);
    let whole = |caps: &Capabilities| {
        make(caps, 1)?.into_iter().map(|product| product.kernel(caps)).collect()
    };
    for kernel in &lane.kernels_by_matrices(whole).map_err(text)? {
        let jobs: Vec<Job> = runs.iter().map(|run| run.job(kernel)).collect();
        check(lane, &jobs, &runs).await?;
    }
    let first = |caps: &Capabilities| {
        let first = make(caps, SPLITS)?.into_iter().take(1);
        first.map(|product| product.kernel(caps)).collect()
    };
    let sum = |caps: &Capabilities| {
        let all = make(caps, SPLITS)?.into_iter().filter_map(|product| product.sum());
        all.map(|sum| sum.kernel(caps)).collect()
    };
    let sums: Vec<Kernel> = lane.kernels_by_matrices(sum).map_err(text)?;
    for kernel in &lane.kernels_by_matrices(first).map_err(text)? {
        let jobs: Vec<Job> = runs.iter().map(|run| run.parts_job(kernel)).collect();
        let parts = lane.run(&jobs).await.map_err(text)?;
        for sum in &sums {
            let job = |(run, parts): (&Run, &Outputs)| run.sum_job(sum, parts.words(0));
            let jobs: Vec<Job> = runs.iter().zip(&parts).map(job).collect();
            check(lane, &jobs, &runs).await.map_err(of(kernel))?;
        }
    }
    Ok(())
}

/// Holds what jobs leave in `c` against the runs that they are of.
async fn check(lane: &Lane, jobs: &[Job], runs: &[Run]) -> std::result::Result<(), String> {
    let results = lane.run(jobs).await.map_err(text)?;
    for ((job, got), run) in jobs.iter().zip(&results).zip(runs) {
        let what = format!("{} tokens", run.tokens);
        let used = run.result_words();
        let past = || got.words(0)[used.len()..].iter().any(|word| *word != POISON);
        let message = || format!("{what}: rows past the last one were written");
        forbid(("past", used.len()), past, message).map_err(of(&job.kernel))?;
        let half = run.shape.c == Element::F16;
        let (mut got, stored) = if half { (got.halves(0), HALF) } else { (got.floats(0), 0.0) };
        got.truncate(run.expected.len());
        Run::clear_padding(&run.shape, run.column, &mut got);
        close(&what, &got, &run.expected, ROUNDING + stored).map_err(of(&job.kernel))?;
    }
    Ok(())
}
