//! One batch of operands of a product with its result, as cases of `linear.rs` run it.

use crate::kernels::linear::twin::{Product, matmul, matmul_at, matmul_t};
use crate::kernels::weights::twin::{pack_weights_forward, unpack_weights_forward};
use crate::kernels::{Element, Form, Kernel, LinearShape, Output, WeightFormat, WriteMode};
use crate::testing::harness::{Job, Operand, POISON, Step, in_halves};
use crate::testing::lane::Lane;
use crate::testing::measure::{sum, wide};
use crate::twins::cast;
use half::f16;

/// Parts of K in the split form: not a power of two, and more than the shortest batch can fill.
pub(crate) const SPLITS: usize = 3;

/// One batch of operands with its result.
pub(crate) struct Run {
    pub shape: LinearShape,
    pub tokens: usize,
    row0: usize,
    pub column: usize,
    accumulate: bool,
    operands: [Vec<f32>; 3],
    /// The second operand packed, where it is.
    words: Vec<u32>,
    /// A residual, a bias or both, in the order of their bindings.
    added: Vec<Vec<f32>>,
    pub expected: Vec<f64>,
}

/// The first column of the slice of wider rows, where there are any.
fn first_column(shape: &LinearShape) -> usize {
    let more = [(shape.a_stride, shape.k), (shape.c_stride, shape.n)];
    match more.into_iter().any(|(stride, used)| stride >= used + 3) {
        false => 0,
        true if shape.by_vectors() => 4,
        true => 3,
    }
}

/// What a matrix stands for in a format, and its words where it is packed.
pub fn as_it_lies(format: WeightFormat, matrix: Vec<f32>) -> (Vec<f32>, Vec<u32>) {
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

impl Run {
    pub fn new(
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
            | Output::BiasedResidual
            | Output::GateGradient(_)
            | Output::Gated(_) => false,
            Output::Mode(WriteMode::Add) => true,
            Output::Mode(WriteMode::AddAfterFirst) => accumulate,
        };
        let (operands, words) = Self::operands(lane, &shape, tokens, adds);
        let [elements, row] = [operands[2].len(), shape.c_stride];
        let added = match output {
            // A gate and its gradient have runs of their own.
            Output::Mode(_) | Output::GateGradient(_) | Output::Gated(_) => vec![],
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
    pub fn clear_padding<T: Default + Clone>(shape: &LinearShape, column: usize, c: &mut [T]) {
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

    /// Operands a and b as they lie.
    fn inputs(&self) -> [Operand; 2] {
        let [a, b, _] = &self.operands;
        let a = match self.shape.a {
            Element::F32 => Operand::floats(a),
            Element::F16 => Operand::words(&in_halves(a)),
        };
        let b = match self.shape.b {
            WeightFormat::F32 => Operand::floats(b),
            _ => {
                // Buffers of packed matrices are of whole vectors.
                let mut words = self.words.clone();
                words.resize(words.len().next_multiple_of(4), POISON);
                Operand::words(&words)
            }
        };
        [a, b]
    }

    pub fn job(&self, kernel: &Kernel) -> Job {
        let mut operands = self.inputs().to_vec();
        operands.push(self.with_room(self.result_words()));
        operands.extend(self.uniforms());
        operands.extend(self.added_operands());
        Job::new(kernel, self.tokens, operands)
    }

    /// C before the product, as words.
    pub fn result_words(&self) -> Vec<u32> {
        match self.shape.c {
            Element::F32 => self.operands[2].iter().map(|x| x.to_bits()).collect(),
            Element::F16 => in_halves(&self.operands[2]),
        }
    }

    /// Rows of C, and then those that the most tokens would have, as plans bind them: kernels that store whole matrices
    /// need the room of one.
    fn with_room(&self, mut words: Vec<u32>) -> Operand {
        let per_word = if self.shape.c == Element::F16 { 2 } else { 1 };
        words.resize(words.len().max(self.shape.m() * self.shape.c_stride / per_word), POISON);
        Operand::words(&words)
    }

    /// A residual, which is stored as C, and a bias, which is a row.
    fn added_operands(&self) -> impl Iterator<Item = Operand> {
        self.added.iter().map(|added| match added.len() == self.operands[2].len() {
            true => self.with_room(added.iter().map(|x| x.to_bits()).collect()),
            false => Operand::floats(added),
        })
    }

    /// The first stage of the split form: what nobody writes stays poisoned.
    pub fn parts_job(&self, kernel: &Kernel) -> Job {
        let LinearShape { form, k, tokens, .. } = self.shape;
        let rows = if form == Form::MatmulAt { k } else { tokens };
        let mut operands = self.inputs().to_vec();
        operands.push(Operand::poison(SPLITS * rows * self.shape.part_stride()));
        operands.extend(self.uniforms());
        Job::new(kernel, self.tokens, operands)
    }

    pub fn sum_job(&self, kernel: &Kernel, parts: &[u32]) -> Job {
        let mut operands = vec![Operand::words(parts), self.with_room(self.result_words())];
        operands.extend(self.uniforms());
        operands.extend(self.added_operands());
        Job::new(kernel, self.tokens, operands)
    }
}
