//! Family 03: the three products in every tile, and the matrix-vector product.

use super::attention_matrix_forward::HALF;
use super::harness::{Job, Operand, Outputs, POISON, Step};
use super::lane::{Lane, Others};
use super::matvec_ranges::product_of_ranges;
use super::measure::{ROUNDING, close, close_to_terms, of, text, wide};
use super::{Case, Outcome};
use crate::caps::{Capabilities, Decoding};
use crate::config::Activation;
use crate::error::{Error, Result};
use crate::kernels::{
    self as k, Element, Form, Kernel, Linear, LinearPick, LinearShape, LinearTile, MatvecInput,
    MatvecOutput, MatvecShape, Output, WeightFormat, WriteMode,
};
use crate::twins::activation::{gated_activation_backward, gated_activation_forward};
use crate::twins::linear::{Product, matmul, matmul_at, matmul_t, matvec_forward};
use crate::twins::norm::rms_norm_forward;
use crate::twins::weights::{pack_weights_forward, unpack_weights_forward};
use crate::twins::{add_assign, cast};
use half::f16;
use std::rc::Rc;

pub(super) fn cases() -> Vec<Case> {
    let mut cases: Vec<Case> = Form::ALL
        .into_iter()
        .flat_map(|form| {
            Rows::ALL.into_iter().flat_map(move |rows| {
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
    cases.push(Case::new("matvec", matvec));
    cases.push(Case::new("matvec of ranges", product_of_ranges));
    cases
}

/// What the lengths of rows are.
#[derive(Clone, Copy, PartialEq)]
enum Rows {
    Fours,
    Odd,
    /// The matrix's rows are odd, and the rows that have them as columns are padded.
    Padded,
}

impl Rows {
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
fn shape(form: Form, rows: Rows, wide: bool) -> LinearShape {
    // `more`: columns that a row of C, or of A, has beside N, or K. The matrix's rows are N, and K of `Matmul`;
    // `MatmulAt` exchanges the two.
    let by_k = form == Form::Matmul;
    let (n, k, more) = match (rows, wide) {
        (Rows::Fours, true) => (132, 96, 8),
        (Rows::Fours, false) => (132, 20, 0),
        (Rows::Odd, true) => (131, 83, 3),
        (Rows::Odd, false) => (131, 19, 0),
        (Rows::Padded, true) if by_k => (132, 95, 9),
        (Rows::Padded, false) if by_k => (132, 19, 1),
        (Rows::Padded, true) => (130, 96, 10),
        (Rows::Padded, false) => (130, 20, 2),
    };
    let (n, k) = if form == Form::MatmulAt { (k + 112, n) } else { (n, k) };
    let shape = LinearShape::new(form, n, k, 192);
    let shape = LinearShape { padded: rows == Rows::Padded, ..shape };
    match form {
        Form::MatmulT => LinearShape { c_stride: n + more, ..shape },
        Form::Matmul | Form::MatmulAt => LinearShape { a_stride: k + more, ..shape },
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
    if shape.half && caps.half_matrix().is_none() {
        return Err(Error::limit("subgroupMatrixConfigs", 0, 1, "a product by matrices"));
    }
    let tiles = k::linear_tiles(caps, shape);
    tiles
        .iter()
        .filter(|tile| splits == 1 || !matches!(tile, LinearTile::Direct { .. }))
        .map(|&tile| {
            let pick = LinearPick { tile, splits, reason: String::new() };
            k::linear_with_tile(caps, shape, output, pick)
        })
        .collect()
}

async fn product(lane: Rc<Lane>, form: Form, rows: Rows, half: bool) -> Outcome {
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
                Ok(all.into_iter().map(|linear| linear.product).collect())
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

/// A product whose B lies packed, in every tile.
async fn packed(lane: Rc<Lane>, form: Form, format: WeightFormat, half: bool) -> Outcome {
    let output = outputs(form)[0];
    for vectors in [true, false] {
        let shape = LinearShape { b: format, half, ..packed_shape(form, vectors) };
        let runs = [(1, 0, false), (129, 5, true)]
            .map(|(tokens, row0, later)| Run::new(&lane, shape, output, tokens, row0, later));
        let make = |caps: &Capabilities| {
            let all = products(caps, &shape, output, 1)?;
            Ok(all.into_iter().map(|linear| linear.product).collect())
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

/// A product by matrices of activations that lie in f16: A, and of `MatmulAt` both or B alone; of the other forms C too,
/// as a whole and as the sum of parts.
async fn halves(lane: Rc<Lane>, form: Form) -> Outcome {
    let both = [(Element::F16, WeightFormat::F32), (Element::F16, WeightFormat::F16)];
    let alone = (Element::F32, WeightFormat::F16);
    let lie = if form == Form::MatmulAt { vec![both[0], both[1], alone] } else { both.to_vec() };
    for (a, b) in lie {
        let shape = LinearShape { a, b, half: true, ..shape(form, Rows::Fours, true) };
        let output = outputs(form)[0];
        let runs = [(1, 0, false), (129, 5, true)]
            .map(|(tokens, row0, later)| Run::new(&lane, shape, output, tokens, row0, later));
        let make = |caps: &Capabilities| {
            let all = products(caps, &shape, output, 1)?;
            Ok(all.into_iter().map(|linear| linear.product).collect())
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

/// A product by matrices of which C lies in f16, as a whole and as the sum of parts.
async fn results_in_halves(lane: &Lane, form: Form) -> std::result::Result<(), String> {
    let shape = shape(form, Rows::Fours, true);
    let shape = LinearShape { c: Element::F16, half: true, ..shape };
    let output = outputs(form)[0];
    let runs = [(1, 0, false), (129, 5, true)]
        .map(|(tokens, row0, later)| Run::new(lane, shape, output, tokens, row0, later));
    let make = |caps: &Capabilities, splits: usize| products(caps, &shape, output, splits);
    let whole =
        |caps: &Capabilities| Ok(make(caps, 1)?.into_iter().map(|linear| linear.product).collect());
    for kernel in &lane.kernels_by_matrices(whole).map_err(text)? {
        let jobs: Vec<Job> = runs.iter().map(|run| run.job(kernel)).collect();
        check(lane, &jobs, &runs).await?;
    }
    let first = |caps: &Capabilities| {
        Ok(make(caps, SPLITS)?.into_iter().take(1).map(|linear| linear.product).collect())
    };
    let sum = |caps: &Capabilities| {
        let all = make(caps, SPLITS)?.into_iter().filter_map(|linear| linear.sum);
        Ok(all.map(|sum| sum.kernel).collect())
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
        if got.words(0)[used.len()..].iter().any(|word| *word != POISON) {
            return Err(of(&job.kernel)(format!("{what}: rows past the last one were written")));
        }
        let half = run.shape.c == Element::F16;
        let (mut got, stored) = if half { (got.halves(0), HALF) } else { (got.floats(0), 0.0) };
        got.truncate(run.expected.len());
        Run::clear_padding(&run.shape, run.column, &mut got);
        close(&what, &got, &run.expected, ROUNDING + stored).map_err(of(&job.kernel))?;
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
    /// The second operand packed, where it is.
    words: Vec<u32>,
    /// A residual, a bias or both, in the order of their bindings.
    added: Vec<Vec<f32>>,
    expected: Vec<f64>,
}

/// Of the slice of wider rows, where there are any.
fn first_column(shape: &LinearShape) -> usize {
    let more = [(shape.a_stride, shape.k), (shape.c_stride, shape.n)];
    match more.into_iter().any(|(stride, used)| stride >= used + 3) {
        false => 0,
        true if shape.by_vectors() => 4,
        true => 3,
    }
}

/// What a matrix stands for in a format, and its words where it is packed.
fn as_it_lies(format: WeightFormat, matrix: Vec<f32>) -> (Vec<f32>, Vec<u32>) {
    if format == WeightFormat::F32 {
        return (matrix, vec![]);
    }
    if format == WeightFormat::F16 {
        let words = in_halves(&matrix);
        return (matrix.iter().map(|x| f16::from_f32(*x).to_f32()).collect(), words);
    }
    let words = pack_weights_forward(format, &matrix);
    (cast(&unpack_weights_forward(format, &words, matrix.len())), words)
}

/// Numbers in f16, two to a word; the last word may end with nothing.
pub(super) fn in_halves(values: &[f32]) -> Vec<u32> {
    let bits = |x: f32| u32::from(f16::from_f32(x).to_bits());
    values.chunks(2).map(|two| bits(two[0]) | two.get(1).map_or(0, |x| bits(*x)) << 16).collect()
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
        let column = first_column(&shape);
        let adds = match output {
            Output::Mode(WriteMode::Overwrite)
            | Output::Residual
            | Output::Bias
            | Output::BiasedResidual => false,
            Output::Mode(WriteMode::Add) => true,
            Output::Mode(WriteMode::AddAfterFirst) => accumulate,
        };
        let (operands, words) = Self::operands(lane, &shape, tokens, adds);
        let [elements, row] = [operands[2].len(), shape.c_stride];
        let added = match output {
            Output::Mode(_) => vec![],
            Output::Residual => vec![lane.normal(elements)],
            Output::Bias => vec![lane.normal(row)],
            Output::BiasedResidual => vec![lane.normal(elements), lane.normal(row)],
        };
        let expected = vec![];
        let run =
            Self { shape, tokens, row0, column, accumulate, operands, words, added, expected };
        Self { expected: run.result(adds), ..run }
    }

    /// Operands a, b and c before the product, and b's words where it is packed. What is only overwritten
    /// starts as NaN; columns of other slices must stay as they are.
    fn operands(
        lane: &Lane,
        shape: &LinearShape,
        tokens: usize,
        adds: bool,
    ) -> ([Vec<f32>; 3], Vec<u32>) {
        let LinearShape { form, n, k, a_stride, c_stride, .. } = *shape;
        let column = first_column(shape);
        let (elements_b, rows_c) = match form {
            Form::MatmulT | Form::Matmul => (n * k, tokens),
            Form::MatmulAt => (tokens * n, k),
        };
        let mut a = lane.normal(tokens * a_stride);
        for row in a.chunks_mut(a_stride).filter(|_| shape.padded && form == Form::Matmul) {
            row[column + k..(column + k).next_multiple_of(4)].fill(0.0);
        }
        let (b, words) = as_it_lies(shape.b, lane.normal(elements_b));
        let mut c = lane.normal(rows_c * c_stride);
        if !adds && column == 0 {
            c.fill(f32::NAN);
        }
        if shape.c == Element::F16 {
            c.iter_mut().for_each(|x| *x = f16::from_f32(*x).to_f32());
        }
        ([a, b, c], words)
    }

    /// What `c` holds after the product, by the twin; `adds`: the product is added to what it holds before.
    fn result(&self, adds: bool) -> Vec<f64> {
        let LinearShape { form, n, k, a_stride, c_stride, .. } = self.shape;
        let (tokens, [a, b, c]) = (self.tokens, self.operands.each_ref().map(|x| wide(x)));
        // Products by matrices round what they multiply.
        let as_read = |x: Vec<f64>| -> Vec<f64> {
            if self.shape.half {
                x.iter().map(|x| f16::from_f32(*x as f32).to_f64()).collect()
            } else {
                x
            }
        };
        let [a, b] = [a, b].map(as_read);
        // A bias is the same in each row.
        let each_row = |x: &Vec<f32>| wide(&x.repeat(c.len() / x.len()));
        let base = if adds { Some(c.clone()) } else { self.added.iter().map(each_row).reduce(sum) };
        let cut = |x: &[f64], stride: usize, width: usize, column: usize| -> Vec<f64> {
            x.chunks_exact(stride).flat_map(|row| &row[column..column + width]).copied().collect()
        };
        let (a_column, c_column) =
            if form == Form::MatmulT { (0, self.column) } else { (self.column, 0) };
        let left = cut(&a, a_stride, k, a_column);
        let base = base.map(|base| cut(&base, c_stride, n, c_column));
        let base = base.as_deref();
        let product = match form {
            Form::MatmulT => matmul_t(Product { m: tokens, n, k }, &left, &b, base),
            Form::Matmul => matmul(Product { m: tokens, n, k }, &left, &b, base),
            Form::MatmulAt => matmul_at(Product { m: k, n, k: tokens }, &left, &b, base),
        };
        let mut expected = c;
        for (row, values) in expected.chunks_exact_mut(c_stride).zip(product.chunks_exact(n)) {
            row[c_column..c_column + n].copy_from_slice(values);
        }
        Self::clear_padding(&self.shape, c_column, &mut expected);
        expected
    }

    /// Clears the padding of C's rows, which means nothing.
    fn clear_padding<T: Default + Clone>(shape: &LinearShape, column: usize, c: &mut [T]) {
        if !shape.padded || shape.form != Form::MatmulT {
            return;
        }
        let end = column + shape.n;
        for row in c.chunks_mut(shape.c_stride) {
            row[end..end.next_multiple_of(4)].fill(T::default());
        }
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
        if self.shape.a == Element::F16 {
            operands[0] = Operand::words(&in_halves(&self.operands[0]));
        }
        if self.shape.b != WeightFormat::F32 {
            operands[1] = Operand::words(&self.words);
        }
        operands[2] = self.with_room(self.result_words());
        operands.extend(self.uniforms());
        operands.extend(self.added_operands());
        Job::new(kernel, self.tokens, operands)
    }

    /// C before the product, as it lies.
    fn result_words(&self) -> Vec<u32> {
        match self.shape.c {
            Element::F32 => self.operands[2].iter().map(|x| x.to_bits()).collect(),
            Element::F16 => in_halves(&self.operands[2]),
        }
    }

    /// Rows of C with those behind them that the most tokens would have, as plans bind them: kernels that store whole
    /// matrices need the room of one.
    fn with_room(&self, mut words: Vec<u32>) -> Operand {
        let per_word = if self.shape.c == Element::F16 { 2 } else { 1 };
        words.resize(words.len().max(self.shape.m() * self.shape.c_stride / per_word), POISON);
        Operand::words(&words)
    }

    /// A residual, which lies as C, and a bias, which is a row.
    fn added_operands(&self) -> impl Iterator<Item = Operand> {
        self.added.iter().map(|added| match added.len() == self.operands[2].len() {
            true => self.with_room(added.iter().map(|x| x.to_bits()).collect()),
            false => Operand::floats(added),
        })
    }

    /// The first stage of the split form: what nobody writes stays poisoned.
    fn parts_job(&self, kernel: &Kernel) -> Job {
        let LinearShape { form, k, tokens, .. } = self.shape;
        let rows = if form == Form::MatmulAt { k } else { tokens };
        let mut operands = self.operands.each_ref().map(|x| Operand::floats(x)).to_vec();
        operands[2] = Operand::poison(SPLITS * rows * self.shape.part_stride());
        operands.extend(self.uniforms());
        Job::new(kernel, self.tokens, operands)
    }

    fn sum_job(&self, kernel: &Kernel, parts: &[u32]) -> Job {
        let mut operands = vec![Operand::words(parts), self.with_room(self.result_words())];
        operands.extend(self.uniforms());
        operands.extend(self.added_operands());
        Job::new(kernel, self.tokens, operands)
    }
}

/// Every form of the matrix-vector product: the input as it is and normed; the products as they
/// are, added to a residual or to that and a bias, and gated.
async fn matvec(lane: Rc<Lane>) -> Outcome {
    let norm = MatvecInput::Norm { epsilon: k::Constant(EPSILON) };
    let gates = Activation::ALL.map(MatvecOutput::Gated);
    let weights = WeightFormat::F32;
    for (n, k) in [(1, 4), (131, 19), (70, 260), (3, 1), (61, 2304)] {
        for output in [MatvecOutput::Plain, MatvecOutput::Residual, MatvecOutput::BiasedResidual] {
            row(&lane, MatvecShape { n, k, input: MatvecInput::Plain, output, weights }).await?;
        }
        for output in [MatvecOutput::Plain].into_iter().chain(gates) {
            row(&lane, MatvecShape { n, k, input: norm, output, weights }).await?;
        }
    }
    Ok(lane.summary())
}

pub(super) const EPSILON: f64 = 1e-5;

fn sum(mut a: Vec<f64>, b: Vec<f64>) -> Vec<f64> {
    add_assign(&mut a, &b);
    a
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

/// Forms that a class may take: what one takes, and fewer and more results of a subgroup.
pub(super) const FORMS: [Decoding; 3] = [
    Decoding::TEAMS,
    Decoding { near_ranges: 4, team_rows: 1, workgroup_rows: 4 },
    Decoding { near_ranges: 16, team_rows: 32, workgroup_rows: 3 },
];

/// The kernels that the table's adapters choose, and those of each form.
pub(super) fn matvec_variants(
    lane: &Lane,
    shape: MatvecShape,
) -> std::result::Result<Vec<Kernel>, String> {
    let mut made = if matches!(shape.input, MatvecInput::Ranges(..)) {
        vec![]
    } else {
        lane.variants(|caps| k::matvec(caps, shape)).map_err(text)?
    };
    // All of them take long to compile on a CPU.
    let drawn = lane.integers(1, FORMS.len())[0] as usize;
    let forms = if lane.mode.others == Others::Run { &FORMS[..] } else { &FORMS[drawn..=drawn] };
    for &form in forms {
        let formed = |caps: &Capabilities| {
            // Of a CPU's adapter the width stays its own in the table: a team is no wider than the device's.
            let subgroup_size = lane.caps().subgroup_size;
            let caps = Capabilities { decoding: Some(form), subgroup_size, ..caps.clone() };
            let merges = k::matvec_merges(&caps, shape.k);
            if matches!(shape.input, MatvecInput::Ranges(..)) && !merges {
                return Ok(vec![]);
            }
            k::matvec(&caps, shape).map(|kernel| vec![kernel])
        };
        for kernel in lane.chosen(formed).map_err(text)? {
            if !made.contains(&kernel) {
                made.push(kernel);
            }
        }
    }
    Ok(made)
}

/// The product with a matrix that lies in `b` and stands for the numbers of `matrix`.
pub(super) async fn row_by(
    lane: &Lane,
    shape: MatvecShape,
    b: Operand,
    matrix: &[f64],
) -> std::result::Result<(), String> {
    let MatvecShape { n, k, input, output, .. } = shape;
    let made = matvec_variants(lane, shape)?;
    let column = 7;
    let (a, weight) = (lane.normal(k), lane.normal(k));
    let (c, base) = (lane.normal(column + n), lane.normal(column + n));
    let mut operands =
        vec![Operand::floats(&a), b, Operand::floats(&c), Operand::range(0, 1, column, n)];
    let x = match input {
        MatvecInput::Plain => wide(&a),
        MatvecInput::Norm { epsilon: k::Constant(epsilon) } => {
            operands.push(Operand::floats(&weight));
            rms_norm_forward(&wide(&a), &wide(&weight), epsilon)
        }
        MatvecInput::Ranges(..) => return Err("ranges have a case of their own".into()),
    };
    let added = match output {
        MatvecOutput::Residual => vec![base],
        MatvecOutput::BiasedResidual => vec![base, lane.normal(column + n)],
        _ => vec![],
    };
    operands.extend(added.iter().map(|x| Operand::floats(x)));
    let base = added.iter().map(|x| wide(&x[column..])).reduce(sum);
    let products = matvec_forward(&x, matrix, base.as_deref());
    let mut expected = wide(&c[..column]);
    let mut terms = expected.clone();
    if let MatvecOutput::Gated(activation) = output {
        terms.extend(of_both(activation, &products, n));
    }
    expected.extend(match output {
        MatvecOutput::Gated(activation) => gated_activation_forward(activation, &products, n),
        MatvecOutput::Plain | MatvecOutput::Residual | MatvecOutput::BiasedResidual => products,
        MatvecOutput::Bias | MatvecOutput::Heads(_) | MatvecOutput::BiasedHeads(_) => {
            return Err("heads have a case of their own, one row has no bias alone".into());
        }
    });
    let jobs: Vec<_> = made.iter().map(|kernel| Job::new(kernel, 1, operands.clone())).collect();
    for (job, got) in jobs.iter().zip(lane.run(&jobs).await.map_err(text)?) {
        close_to_terms("c", &got.floats(0), &expected, &terms, ROUNDING)
            .map_err(of(&job.kernel))?;
    }
    Ok(())
}

/// How much a gated output changes with a factor on one of its two products, and with one on the other: each is a sum
/// that rounding may change.
pub(super) fn of_both(activation: Activation, products: &[f64], n: usize) -> Vec<f64> {
    let (slopes, _) = gated_activation_backward(activation, products, &vec![1.0; n], n);
    let by_one = |i: usize| (slopes[i] * products[i]).abs();
    (0..n).map(|i| by_one(i) + by_one(n + i)).collect()
}
