//! Family 03: the three products in every tile, and the matrix-vector product.

use super::harness::{Job, Operand, Step};
use super::lane::Lane;
use super::measure::{ROUNDING, close, of, text, wide};
use super::norm::norm_terms;
use super::{Case, Outcome};
use crate::caps::Capabilities;
use crate::config::Activation;
use crate::error::Result;
use crate::kernels::{
    self as k, Form, Kernel, Linear, LinearPick, LinearShape, LinearTile, MatvecInput,
    MatvecOutput, MatvecShape, Output, WeightFormat, WriteMode,
};
use crate::twins::activation::gated_activation_forward;
use crate::twins::linear::{Product, matmul, matmul_at, matmul_t, matvec_forward};
use crate::twins::norm::{rms_norm_forward, with_offset};
use crate::twins::weights::pack_weights_forward;
use std::rc::Rc;

pub(super) fn cases() -> Vec<Case> {
    let mut cases: Vec<Case> = Form::ALL
        .into_iter()
        .flat_map(|form| {
            [true, false].map(|vectors| {
                let rows = if vectors { "rows of fours" } else { "odd rows" };
                let name = format!("linear {} {rows}", form.name());
                Case::new(name, move |lane| product(lane, form, vectors))
            })
        })
        .collect();
    for form in [Form::MatmulT, Form::Matmul] {
        let name = format!("linear {} with b in f16", form.name());
        cases.push(Case::new(name, move |lane| half(lane, form)));
    }
    cases.push(Case::new("matvec", matvec));
    cases
}

/// The ways in which plans write a product of this form.
fn outputs(form: Form) -> &'static [Output] {
    const OVERWRITE: Output = Output::Mode(WriteMode::Overwrite);
    const ADD: Output = Output::Mode(WriteMode::Add);
    match form {
        Form::MatmulT => &[OVERWRITE, Output::Residual, Output::Bias, ADD],
        Form::Matmul => &[OVERWRITE, ADD],
        Form::MatmulAt => &[Output::Mode(WriteMode::AddAfterFirst), ADD],
    }
}

/// One past the largest tile in the outer constant dimension. Operands of the first output, and of one
/// with a bias, are slices of wider rows, as parts of a sharded matrix are, and their K takes several
/// steps, in each part of a split one too: whole ones where rows are of fours. The others' K is short and
/// ends within a step.
fn shape(form: Form, vectors: bool, wide: bool) -> LinearShape {
    let (n, k, more) = match (vectors, wide) {
        (true, true) => (132, 96, 8),
        (true, false) => (132, 20, 8),
        (false, true) => (131, 83, 3),
        (false, false) => (131, 19, 3),
    };
    let (n, k) = if form == Form::MatmulAt { (k + 112, n) } else { (n, k) };
    let plain = LinearShape::new(form, n, k, 192);
    match form {
        _ if !wide => plain,
        Form::MatmulT => LinearShape { c_stride: n + more, ..plain },
        Form::Matmul | Form::MatmulAt => LinearShape { a_stride: k + more, ..plain },
    }
}

/// Parts of K in the split form: not a power of two, and more than the shortest batch can fill.
const SPLITS: usize = 3;

/// A product in every tile that a device may choose.
fn products(
    caps: &Capabilities,
    shape: &LinearShape,
    output: Output,
    splits: usize,
) -> Result<Vec<Linear>> {
    let tiles = k::linear_tiles(caps, shape.form);
    tiles
        .iter()
        .filter(|tile| splits == 1 || matches!(tile, LinearTile::Tiled { .. }))
        .map(|&tile| {
            let pick = LinearPick { tile, splits, reason: String::new() };
            k::linear_with_tile(caps, shape, output, pick)
        })
        .collect()
}

async fn product(lane: Rc<Lane>, form: Form, vectors: bool) -> Outcome {
    for (index, &output) in outputs(form).iter().enumerate() {
        let shape = shape(form, vectors, index == 0 || output == Output::Bias);
        let runs: Vec<Run> = [(1, 0, false), (129, 5, true)]
            .into_iter()
            .map(|(tokens, row0, later)| Run::new(&lane, shape, output, tokens, row0, later))
            .collect();
        let made = |splits: usize| {
            lane.kernels(|caps| {
                let all = products(caps, &shape, output, splits)?;
                Ok(all.into_iter().map(|linear| linear.product).collect())
            })
        };
        // All tiles once; what a product is added to does not depend on them.
        let whole = made(1).map_err(text)?;
        let most = if output == Output::Bias { 1 } else { 3 };
        for kernel in &whole[if index == 0 { 0 } else { whole.len().saturating_sub(most) }..] {
            let jobs: Vec<Job> = runs.iter().map(|run| run.job(kernel)).collect();
            check(&lane, &jobs, &runs).await?;
        }
        if !vectors {
            continue;
        }
        let sums = lane
            .kernels(|caps| {
                let all = products(caps, &shape, output, SPLITS)?;
                Ok(all.into_iter().filter_map(|linear| linear.sum).map(|sum| sum.kernel).collect())
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

/// A product whose B lies in f16, in every tile.
async fn half(lane: Rc<Lane>, form: Form) -> Outcome {
    let output = outputs(form)[0];
    let shape = LinearShape { half_b: true, ..shape(form, true, true) };
    let runs = [(1, 0, false), (129, 5, true)]
        .map(|(tokens, row0, later)| Run::new(&lane, shape, output, tokens, row0, later));
    let made = lane
        .kernels(|caps| {
            let all = products(caps, &shape, output, 1)?;
            Ok(all.into_iter().map(|linear| linear.product).collect())
        })
        .map_err(text)?;
    for kernel in &made {
        let jobs: Vec<Job> = runs.iter().map(|run| run.job(kernel)).collect();
        check(&lane, &jobs, &runs).await?;
    }
    Ok(lane.summary())
}

/// Holds what jobs leave in `c` against the runs that they are of.
async fn check(lane: &Lane, jobs: &[Job], runs: &[Run]) -> std::result::Result<(), String> {
    let results = lane.run(jobs).await.map_err(text)?;
    for ((job, got), run) in jobs.iter().zip(&results).zip(runs) {
        let what = format!("{} tokens", run.tokens);
        close(&what, &got.floats(0), &run.expected, ROUNDING).map_err(of(&job.kernel))?;
    }
    Ok(())
}

/// One batch of operands with its result.
struct Run {
    shape: LinearShape,
    tokens: usize,
    row0: usize,
    column: usize,
    accumulate: bool,
    operands: [Vec<f32>; 3],
    /// A residual, or a bias.
    added: Option<Vec<f32>>,
    expected: Vec<f64>,
}

impl Run {
    fn new(
        lane: &Lane,
        shape: LinearShape,
        output: Output,
        tokens: usize,
        row0: usize,
        accumulate: bool,
    ) -> Self {
        let LinearShape { form, n, k, a_stride, c_stride, .. } = shape;
        let wide_rows = a_stride > k || c_stride > n;
        let column = if !wide_rows {
            0
        } else if n % 4 == 0 {
            4
        } else {
            3
        };
        let (rows_b, rows_c) = match form {
            Form::MatmulT => (n, tokens),
            Form::Matmul => (k, tokens),
            Form::MatmulAt => (tokens, k),
        };
        let b_stride = if form == Form::MatmulT { k } else { n };
        let a = lane.normal(tokens * a_stride);
        let mut b = lane.normal(rows_b * b_stride);
        if shape.half_b {
            b.iter_mut().for_each(|x| *x = half::f16::from_f32(*x).to_f32());
        }
        let added = match output {
            Output::Mode(_) => None,
            Output::Residual => Some(lane.normal(rows_c * c_stride)),
            Output::Bias => Some(lane.normal(c_stride)),
        };
        let adds = match output {
            Output::Mode(WriteMode::Overwrite) | Output::Residual | Output::Bias => false,
            Output::Mode(WriteMode::Add) => true,
            Output::Mode(WriteMode::AddAfterFirst) => accumulate,
        };
        // What is only overwritten starts as NaN; columns of other slices must stay as they are.
        let mut c = lane.normal(rows_c * c_stride);
        if !adds && column == 0 {
            c.fill(f32::NAN);
        }
        // A bias is the same in each row.
        let each_row = |x: &Vec<f32>| x.repeat(rows_c * c_stride / x.len());
        let base = if adds { Some(c.clone()) } else { added.as_ref().map(each_row) };
        let cut = |x: &[f32], stride: usize, width: usize, column: usize| -> Vec<f64> {
            x.chunks_exact(stride).flat_map(|row| wide(&row[column..column + width])).collect()
        };
        let (a_column, c_column) = if form == Form::MatmulT { (0, column) } else { (column, 0) };
        let left = cut(&a, a_stride, k, a_column);
        let base = base.map(|base| cut(&base, c_stride, n, c_column));
        let product = match form {
            Form::MatmulT => {
                matmul_t(Product { m: tokens, n, k }, &left, &wide(&b), base.as_deref())
            }
            Form::Matmul => matmul(Product { m: tokens, n, k }, &left, &wide(&b), base.as_deref()),
            Form::MatmulAt => {
                matmul_at(Product { m: k, n, k: tokens }, &left, &wide(&b), base.as_deref())
            }
        };
        let mut expected = wide(&c);
        for (row, values) in expected.chunks_exact_mut(c_stride).zip(product.chunks_exact(n)) {
            row[c_column..c_column + n].copy_from_slice(values);
        }
        Self { shape, tokens, row0, column, accumulate, operands: [a, b, c], added, expected }
    }

    /// The `step` and `range` uniforms. The batch ends inside the range: the range's own count is
    /// one too many.
    fn uniforms(&self) -> [Operand; 2] {
        let step =
            Step { accumulate: u32::from(self.accumulate), ..Step::of(self.row0 + self.tokens) };
        let width = if self.shape.form == Form::MatmulAt { self.shape.k } else { self.shape.n };
        [Operand::uniform(&step), Operand::range(self.row0, self.tokens + 1, self.column, width)]
    }

    fn job(&self, kernel: &Kernel) -> Job {
        let mut operands = self.operands.each_ref().map(|x| Operand::floats(x)).to_vec();
        if self.shape.half_b {
            operands[1] =
                Operand::words(&pack_weights_forward(WeightFormat::F16, &self.operands[1]));
        }
        operands.extend(self.uniforms());
        operands.extend(self.added.as_deref().map(Operand::floats));
        Job::new(kernel, self.tokens, operands)
    }

    /// The first stage of the split form: what nobody writes stays poisoned.
    fn parts_job(&self, kernel: &Kernel) -> Job {
        let LinearShape { form, n, k, tokens, .. } = self.shape;
        let rows = if form == Form::MatmulAt { k } else { tokens };
        let mut operands = self.operands.each_ref().map(|x| Operand::floats(x)).to_vec();
        operands[2] = Operand::poison(SPLITS * rows * n);
        operands.extend(self.uniforms());
        Job::new(kernel, self.tokens, operands)
    }

    fn sum_job(&self, kernel: &Kernel, parts: &[u32]) -> Job {
        let mut operands = vec![Operand::words(parts), Operand::floats(&self.operands[2])];
        operands.extend(self.uniforms());
        operands.extend(self.added.as_deref().map(Operand::floats));
        Job::new(kernel, self.tokens, operands)
    }
}

/// Every form of the matrix-vector product: the input as it is and normed; the products as they
/// are, added to a residual, and gated.
async fn matvec(lane: Rc<Lane>) -> Outcome {
    let gates = Activation::ALL.map(MatvecOutput::Gated);
    let weights = WeightFormat::F32;
    for (n, k, offset) in
        [(1, 4, 0.0), (131, 19, 1.0), (70, 260, 1.0), (3, 1, 0.0), (61, 2304, 0.0)]
    {
        let norm = MatvecInput::Norm(norm_terms(offset));
        for output in [MatvecOutput::Plain, MatvecOutput::Residual] {
            row(&lane, MatvecShape { n, k, input: MatvecInput::Plain, output, weights }).await?;
        }
        for output in [MatvecOutput::Plain].into_iter().chain(gates) {
            row(&lane, MatvecShape { n, k, input: norm, output, weights }).await?;
        }
    }
    Ok(lane.summary())
}

/// The product with a matrix of numbers as they are.
async fn row(lane: &Lane, shape: MatvecShape) -> std::result::Result<(), String> {
    let b = matvec_matrix(lane, shape);
    row_by(lane, shape, Operand::floats(&b), &wide(&b)).await
}

/// A matrix for [`row_by`]. Products are of about 1, as a model's are: an activation makes an error of
/// a large one larger.
pub(super) fn matvec_matrix(lane: &Lane, shape: MatvecShape) -> Vec<f32> {
    let MatvecShape { n, k, output, .. } = shape;
    let rows = n * output.products();
    let mut b = lane.normal(rows * k);
    b.iter_mut().for_each(|x| *x /= (k as f32).sqrt());
    b
}

/// The product with a matrix that lies in `b` and stands for the numbers of `matrix`.
pub(super) async fn row_by(
    lane: &Lane,
    shape: MatvecShape,
    b: Operand,
    matrix: &[f64],
) -> std::result::Result<(), String> {
    let MatvecShape { n, k, input, output, .. } = shape;
    let made = lane.variants(|caps| k::matvec(caps, shape)).map_err(text)?;
    let column = 7;
    let (a, weight) = (lane.normal(k), lane.normal(k));
    let (c, base) = (lane.normal(column + n), lane.normal(column + n));
    let mut operands =
        vec![Operand::floats(&a), b, Operand::floats(&c), Operand::range(0, 1, column, n)];
    let x = match input {
        MatvecInput::Plain => wide(&a),
        MatvecInput::Norm(terms) => {
            operands.push(Operand::floats(&weight));
            let factor = with_offset(&wide(&weight), terms.offset.0);
            rms_norm_forward(&wide(&a), &factor, terms.epsilon.0)
        }
    };
    let residual = (output == MatvecOutput::Residual).then(|| {
        operands.push(Operand::floats(&base));
        wide(&base[column..])
    });
    let products = matvec_forward(&x, matrix, residual.as_deref());
    let mut expected = wide(&c[..column]);
    expected.extend(match output {
        MatvecOutput::Gated(activation) => gated_activation_forward(activation, &products, n),
        MatvecOutput::Plain | MatvecOutput::Residual => products,
        MatvecOutput::Heads(_) | MatvecOutput::BiasedHeads(_) => {
            return Err("heads have bindings and a case of their own".into());
        }
    });
    let jobs: Vec<_> = made.iter().map(|kernel| Job::new(kernel, 1, operands.clone())).collect();
    for (job, got) in jobs.iter().zip(lane.run(&jobs).await.map_err(text)?) {
        close("c", &got.floats(0), &expected, ROUNDING).map_err(of(&job.kernel))?;
    }
    Ok(())
}
