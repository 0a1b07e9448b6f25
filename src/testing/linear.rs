//! Family 03: the three products in every tile, and the matrix-vector product.

use super::harness::{Job, Operand, Step};
use super::lane::Lane;
use super::measure::{ROUNDING, close, of, text, wide};
use super::{Case, Outcome};
use crate::caps::Capabilities;
use crate::error::Result;
use crate::kernels::{self as k, Form, Kernel, LinearShape, Output, WriteMode};
use crate::reference::linear::{Product, matmul, matmul_at, matmul_t, matvec_forward};
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
    cases.push(Case::new("matvec", matvec));
    cases
}

/// The ways in which plans write a product of this form.
fn outputs(form: Form) -> [Output; 2] {
    match form {
        Form::MatmulT => [Output::Mode(WriteMode::Overwrite), Output::Residual],
        Form::Matmul => [Output::Mode(WriteMode::Overwrite), Output::Mode(WriteMode::Add)],
        Form::MatmulAt => [Output::Mode(WriteMode::AddAfterFirst), Output::Mode(WriteMode::Add)],
    }
}

/// One past the largest tile in both constant dimensions. The first output's operands are slices
/// of wider rows, as parts of a sharded matrix are.
fn shape(form: Form, vectors: bool, wide: bool) -> LinearShape {
    let (n, k, more) = if vectors { (132, 20, 8) } else { (131, 19, 3) };
    let (n, k) = if form == Form::MatmulAt { (k + 112, n) } else { (n, k) };
    let plain = LinearShape::new(form, n, k, 192);
    match form {
        _ if !wide => plain,
        Form::MatmulT => LinearShape { c_stride: n + more, ..plain },
        Form::Matmul | Form::MatmulAt => LinearShape { a_stride: k + more, ..plain },
    }
}

fn kernels(caps: &Capabilities, shape: &LinearShape, output: Output) -> Result<Vec<Kernel>> {
    k::linear_tiles(caps)
        .into_iter()
        .map(|tile| k::linear_with_tile(caps, shape, output, tile, String::new()))
        .collect()
}

async fn product(lane: Rc<Lane>, form: Form, vectors: bool) -> Outcome {
    for (index, output) in outputs(form).into_iter().enumerate() {
        let shape = shape(form, vectors, index == 0);
        let made = lane.kernels(|caps| kernels(caps, &shape, output)).map_err(text)?;
        let runs: Vec<Run> = [(1, 0, false), (129, 5, true)]
            .into_iter()
            .map(|(tokens, row0, later)| Run::new(&lane, shape, output, tokens, row0, later))
            .collect();
        let jobs: Vec<Job> =
            made.iter().flat_map(|kernel| runs.iter().map(|run| run.job(kernel))).collect();
        let results = lane.run(&jobs).await.map_err(text)?;
        for ((job, got), run) in jobs.iter().zip(&results).zip(runs.iter().cycle()) {
            let what = format!("{} tokens", run.tokens);
            close(&what, &got.floats(0), &run.expected, ROUNDING).map_err(of(&job.kernel))?;
        }
    }
    Ok(lane.summary())
}

/// One batch of operands with its result.
struct Run {
    shape: LinearShape,
    tokens: usize,
    row0: usize,
    column: usize,
    accumulate: bool,
    operands: [Vec<f32>; 3],
    residual: Option<Vec<f32>>,
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
        let b = lane.normal(rows_b * b_stride);
        let residual = (output == Output::Residual).then(|| lane.normal(rows_c * c_stride));
        let adds = match output {
            Output::Mode(WriteMode::Overwrite) | Output::Residual => false,
            Output::Mode(WriteMode::Add) => true,
            Output::Mode(WriteMode::AddAfterFirst) => accumulate,
        };
        // What is only overwritten starts as NaN; columns of other slices must stay as they are.
        let mut c = lane.normal(rows_c * c_stride);
        if !adds && column == 0 {
            c.fill(f32::NAN);
        }
        let base = if adds { Some(&c) } else { residual.as_ref() };
        let cut = |x: &[f32], stride: usize, width: usize, column: usize| -> Vec<f64> {
            x.chunks_exact(stride).flat_map(|row| wide(&row[column..column + width])).collect()
        };
        let (a_column, c_column) = if form == Form::MatmulT { (0, column) } else { (column, 0) };
        let left = cut(&a, a_stride, k, a_column);
        let base = base.map(|base| cut(base, c_stride, n, c_column));
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
        Self { shape, tokens, row0, column, accumulate, operands: [a, b, c], residual, expected }
    }

    fn job(&self, kernel: &Kernel) -> Job {
        let step = Step {
            accumulate: u32::from(self.accumulate),
            // The batch ends inside the range: the range's own count is one too many.
            ..Step::of(self.row0 + self.tokens)
        };
        let width = if self.shape.form == Form::MatmulAt { self.shape.k } else { self.shape.n };
        let range = Operand::range(self.row0, self.tokens + 1, self.column, width);
        let [a, b, c] = self.operands.each_ref().map(|x| Operand::floats(x));
        let mut operands = vec![a, b, c, Operand::uniform(&step), range];
        operands.extend(self.residual.as_deref().map(Operand::floats));
        Job::new(kernel, self.tokens, operands)
    }
}

async fn matvec(lane: Rc<Lane>) -> Outcome {
    for (n, k) in [(1, 4), (131, 19), (70, 260), (3, 1)] {
        for residual in [false, true] {
            let made = lane.variants(|caps| k::matvec(caps, n, k, residual)).map_err(text)?;
            let column = 7;
            let (a, b) = (lane.normal(k), lane.normal(n * k));
            let c = lane.normal(column + n);
            let base = lane.normal(column + n);
            let jobs: Vec<Job> = made
                .iter()
                .map(|kernel| {
                    let mut operands: Vec<_> =
                        [&a, &b, &c].into_iter().map(|x| Operand::floats(x)).collect();
                    operands.push(Operand::range(0, 1, column, n));
                    if residual {
                        operands.push(Operand::floats(&base));
                    }
                    Job::new(kernel, 1, operands)
                })
                .collect();
            let mut expected = wide(&c[..column]);
            let base = wide(&base[column..]);
            expected.extend(matvec_forward(&wide(&a), &wide(&b), residual.then_some(&base[..])));
            for (job, got) in jobs.iter().zip(lane.run(&jobs).await.map_err(text)?) {
                close("c", &got.floats(0), &expected, ROUNDING).map_err(of(&job.kernel))?;
            }
        }
    }
    Ok(lane.summary())
}
