//! Family 03: products whose sums have an adapter's terms too, by every tile that can.

use crate::caps::Capabilities;
use crate::kernels::linear::cases::run::{Run, SPLITS};
use crate::kernels::linear::cases::{check, products};
use crate::kernels::low_rank::cases::{matrices, shape};
use crate::kernels::low_rank::twin::low_rank_product;
use crate::kernels::low_rank::{LowRankProduct, LowRankShape, LowRankSide};
use crate::kernels::{
    AdaptedProduct, Constant, Element, Form, Kernel, LinearProduct, LinearShape, LinearTile,
    Output, Spec, WeightFormat, WriteMode,
};
use crate::testing::harness::{Job, Operand, Outputs};
use crate::testing::lane::Lane;
use crate::testing::measure::{of, text, wide};
use crate::testing::{Case, Outcome};
use half::f16;
use std::rc::Rc;

pub(crate) fn cases() -> Vec<Case> {
    let forms = [Form::MatmulT, Form::Matmul];
    let by = |form: Form| {
        [false, true].map(|half| {
            let by = if half { " by matrices" } else { "" };
            let name = format!("linear {} with an adapter's terms{by}", form.name());
            Case::new(name, move |lane| adapted(lane, form, half))
        })
    };
    forms.into_iter().flat_map(by).collect()
}

/// An adapter's terms beside a product.
pub(super) struct Terms {
    pub low: LowRankShape,
    /// Whether they are rounded to f16: the short rows, and the matrices.
    rounded: [bool; 2],
    form: Form,
    weights: Vec<f32>,
}

impl Terms {
    /// Two modules, and columns that none has; or one.
    pub fn new(lane: &Lane, product: &LinearShape) -> Self {
        let LinearShape { form, n, half, b, .. } = *product;
        let low = match form {
            Form::MatmulT => shape(20, 16, &[n - 68, 44], 8),
            _ if n < 132 => shape(4, n, &[24], 0),
            _ => shape(20, n, &[24, 8], 0),
        };
        let mut weights = lane.normal(matrices(&low));
        if b == WeightFormat::F16 {
            // Some GPUs round to the nearest number, some towards zero: of these numbers both are the same.
            weights.iter_mut().for_each(|x| *x = f16::from_f32(*x).to_f32());
        }
        Self { low, rounded: [half, half || b == WeightFormat::F16], form, weights }
    }

    /// Adds the terms of `tokens` random short rows to sums, and gives the operands of both.
    pub fn add(&self, lane: &Lane, tokens: usize, sums: &mut [f64]) -> [Operand; 2] {
        let short = lane.normal(tokens * self.low.short);
        let as_read = |x: &[f32], rounded: bool| -> Vec<f64> {
            if rounded { x.iter().map(|x| f16::from_f32(*x).to_f64()).collect() } else { wide(x) }
        };
        let (side, backward) = match self.form {
            Form::MatmulT => (LowRankSide::B, false),
            _ => (LowRankSide::A, true),
        };
        let (scale, mode, rows) = (Constant(1.0), WriteMode::Overwrite, Element::F32);
        let of = LowRankProduct { shape: self.low, side, backward, scale, mode, rows };
        let [of_short, of_weights] = self.rounded;
        let (rows, weights) = (as_read(&short, of_short), as_read(&self.weights, of_weights));
        for (at, x) in low_rank_product(&of, &rows, &weights, tokens) {
            sums[at] += x;
        }
        [Operand::floats(&short), Operand::floats(&self.weights)]
    }
}

/// Shapes whose K ends within a step, and after whole ones in each part; operands in f16, and by matrices the result too.
fn shapes(form: Form, half: bool) -> [LinearShape; 3] {
    let plain = |k: usize| LinearShape { half, ..LinearShape::new(form, 132, k, 192) };
    let halved = LinearShape { b: WeightFormat::F16, ..plain(20) };
    if half {
        let (a, c) = (Element::F16, Element::F16);
        return [plain(20), LinearShape { a, ..plain(96) }, LinearShape { a, c, ..halved }];
    }
    [plain(20), plain(96), halved]
}

async fn adapted(lane: Rc<Lane>, form: Form, half: bool) -> Outcome {
    for (index, shape) in shapes(form, half).into_iter().enumerate() {
        let output = match (form, index) {
            (Form::MatmulT, 0) => Output::BiasedResidual,
            (_, 0) => Output::Mode(WriteMode::Add),
            _ => Output::Mode(WriteMode::Overwrite),
        };
        one(&lane, shape, output).await?;
    }
    Ok(lane.summary())
}

/// The kernels of a product with terms, in every tile.
fn kernels(
    lane: &Lane,
    shape: LinearShape,
    output: Output,
    (splits, low): (usize, LowRankShape),
) -> Result<Vec<Kernel>, String> {
    let make = |caps: &Capabilities| {
        let all = products(caps, &shape, output, splits)?.into_iter();
        all.filter(|product| !matches!(product.tile, Some(LinearTile::Direct { .. })))
            .map(|product| AdaptedProduct { product, low }.kernel(caps))
            .collect()
    };
    let made = if shape.half { lane.kernels_by_matrices(make) } else { lane.kernels(make) };
    made.map_err(text)
}

async fn one(lane: &Lane, shape: LinearShape, output: Output) -> Result<(), String> {
    let terms = Terms::new(lane, &shape);
    let mut runs = vec![];
    let mut added = vec![];
    for (tokens, row0, later) in [(1, 0, false), (129, 5, true)] {
        let mut run = Run::new(lane, shape, output, tokens, row0, later);
        added.push(terms.add(lane, tokens, &mut run.expected));
        runs.push(run);
    }
    let with = |mut job: Job, terms: &[Operand; 2]| {
        job.operands.extend(terms.iter().cloned());
        job
    };
    for kernel in &kernels(lane, shape, output, (1, terms.low))? {
        let jobs = runs.iter().zip(&added).map(|(run, terms)| with(run.job(kernel), terms));
        check(lane, &jobs.collect::<Vec<_>>(), &runs).await?;
    }
    if shape.k < 96 {
        return Ok(());
    }
    let sum = |caps: &Capabilities| {
        let all = products(caps, &shape, output, SPLITS)?;
        all.iter().take(1).filter_map(LinearProduct::sum).map(|sum| sum.kernel(caps)).collect()
    };
    let sums = lane.kernels_by_matrices(sum).map_err(text)?;
    for kernel in &kernels(lane, shape, output, (SPLITS, terms.low))? {
        let jobs = runs.iter().zip(&added).map(|(run, terms)| with(run.parts_job(kernel), terms));
        let parts = lane.run(&jobs.collect::<Vec<_>>()).await.map_err(text)?;
        for sum in &sums {
            let job = |(run, parts): (&Run, &Outputs)| run.sum_job(sum, parts.words(0));
            let jobs: Vec<Job> = runs.iter().zip(&parts).map(job).collect();
            check(lane, &jobs, &runs).await.map_err(of(kernel))?;
        }
    }
    Ok(())
}
