//! Batches of attention of any length: the forward pass and the gradients of some rows in f64, and
//! the kernels' results held against them.

use super::forward::Setting;
use crate::data::document_ends;
use crate::kernels::Kernel;
use crate::kernels::attention::twin::causal::{CausalAttention, attention_forward};
use crate::kernels::attention::twin::gradient_rows::ForwardResults;
use crate::testing::harness::{Job, Operand, Outputs, POISON, Step};
use crate::testing::lane::Lane;
use crate::testing::measure::{close_to_terms, dot, hold, narrow, relative_error, wide};
use std::collections::BTreeSet;

/// Rows whose gradients are compared; of shorter batches all.
const SAMPLES: usize = 64;

/// The two gradients, each by its own kernels.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Side {
    Query,
    KeyValue,
}

/// A batch and what the twins make of it.
pub(crate) struct TwinBatch {
    pub shape: CausalAttention,
    documents: Vec<u32>,
    qkv: Vec<f32>,
    d_out: Vec<f32>,
    out: Vec<f64>,
    /// Left by the forward pass for the backward pass.
    pub lse: Vec<f32>,
    pub delta: Vec<f32>,
    exact_lse: Vec<f64>,
    sampled: Vec<usize>,
    gradients: [ExpectedGradient; 2],
}

/// A gradient at the sampled rows, and the same without its delta: a term that cancels wholly where
/// a query sees one key.
#[derive(Default)]
struct ExpectedGradient {
    expected: Vec<f64>,
    terms: Vec<f64>,
}

impl TwinBatch {
    /// Queries are `size` times as large as standard normal ones.
    pub fn new(lane: &Lane, setting: Setting, documents: Vec<u32>, size: f32) -> Self {
        let shape = setting.twin(documents.len());
        let mut qkv = lane.normal(shape.tokens * shape.qkv_width());
        for row in qkv.chunks_exact_mut(shape.qkv_width()) {
            row[..shape.key_offset()].iter_mut().for_each(|x| *x *= size);
        }
        let d_out = lane.normal(shape.tokens * shape.out_width());
        let (exact, slopes) = (wide(&qkv), wide(&d_out));
        let (out, exact_lse) = attention_forward(shape, &exact, &documents);
        let heads = out.chunks_exact(shape.head_dim).zip(slopes.chunks_exact(shape.head_dim));
        let delta: Vec<f64> = heads.map(|(out, slope)| dot(out, slope)).collect();
        let sampled = sample(lane, shape.tokens);
        let gradients = [Side::Query, Side::KeyValue].map(|side| {
            let at = |delta: &[f64]| {
                let (documents, lse) = (&documents[..], &exact_lse[..]);
                let pass =
                    ForwardResults { shape, qkv: &exact, documents, lse, delta, d_out: &slopes };
                gradient(&pass, side, &sampled)
            };
            ExpectedGradient { expected: at(&delta), terms: at(&vec![0.0; delta.len()]) }
        });
        let (lse, delta) = (narrow(&exact_lse), narrow(&delta));
        Self { shape, documents, qkv, d_out, out, lse, delta, exact_lse, sampled, gradients }
    }

    /// Pairs of a query and a key that it sees, times the elements of their heads.
    pub fn work(&self) -> usize {
        let seen = |s: usize| self.shape.keys(self.documents[s] as usize, s).len();
        (0..self.shape.tokens).map(seen).sum::<usize>() * self.shape.out_width()
    }

    /// The largest magnitude of a logsumexp: about that of the largest scores.
    pub fn largest_score(&self) -> f64 {
        self.exact_lse.iter().fold(0.0, |most, x| most.max(x.abs()))
    }

    pub fn forward(&self, kernel: &Kernel) -> Job {
        let operands = vec![
            Operand::floats(&self.qkv),
            Operand::floats(&self.qkv),
            Operand::words(&self.documents),
            Operand::poison(self.out.len()),
            Operand::poison(self.lse.len()),
            Operand::uniform(&Step::of(self.shape.tokens)),
        ];
        Job::new(kernel, self.shape.tokens, operands)
    }

    /// Compares what [`TwinBatch::forward`] gave; returns the output's relative error.
    pub fn check_forward(&self, got: &Outputs, tolerance: f64) -> Result<f64, String> {
        let what = |name: &str| format!("{name} of {} tokens", self.shape.tokens);
        let (out, lse) = (got.floats(0), got.floats(1));
        close_to_terms(&what("output"), &out, &self.out, &[], tolerance)?;
        // A logarithm near zero is as exact as its argument, which is near one.
        let ones = vec![1.0; lse.len()];
        close_to_terms(&what("lse"), &lse, &self.exact_lse, &ones, tolerance)?;
        Ok(relative_error(&out, &self.out, &[]))
    }

    /// A backward kernel's job with `output` words to write; document ends follow `ends` after the starts.
    pub fn backward(&self, kernel: &Kernel, ends: usize, output: usize) -> Job {
        let mut documents = self.documents.clone();
        documents.resize(ends, u32::MAX);
        documents.extend(document_ends(&self.documents));
        let operands = vec![
            Operand::floats(&self.qkv),
            Operand::floats(&self.d_out),
            Operand::floats(&self.lse),
            Operand::floats(&self.delta),
            Operand::words(&documents),
            Operand::poison(output),
            Operand::uniform(&Step::of(self.shape.tokens)),
        ];
        Job::new(kernel, self.shape.tokens, operands)
    }

    /// Σ output · d_output by a kernel, of the output that a forward kernel gave.
    pub fn delta_job(&self, kernel: &Kernel, out: &[f32]) -> Job {
        let operands = vec![
            Operand::floats(out),
            Operand::floats(&self.d_out),
            Operand::poison(self.delta.len()),
            Operand::uniform(&Step::of(self.shape.tokens)),
        ];
        Job::new(kernel, self.shape.tokens, operands)
    }

    /// Words of d_qkv.
    pub fn words(&self) -> usize {
        self.qkv.len()
    }

    /// The sum of the parts that a backward kernel left for each query head.
    pub fn sum(&self, kernel: &Kernel, parts: &Outputs) -> Job {
        let operands = vec![
            Operand::words(parts.words(0)),
            Operand::poison(self.words()),
            Operand::uniform(&Step::of(self.shape.tokens)),
        ];
        Job::new(kernel, self.shape.tokens, operands)
    }

    /// Compares the columns of a side at the sampled rows; those of other rows must be finite, those
    /// of the other side untouched. Returns the error relative to the gradient's terms.
    pub fn check_gradient(&self, got: &Outputs, side: Side, tolerance: f64) -> Result<f64, String> {
        let (width, keys) = (self.shape.qkv_width(), self.shape.key_offset());
        hold(("columns", width, keys, side as usize), || {
            for (i, &word) in got.words(0).iter().enumerate() {
                let (row, column, written) = (i / width, i % width, word != POISON);
                if written != ((column < keys) == (side == Side::Query)) {
                    return Err(format!("row {row}, column {column}: written {written}"));
                }
                if written && !f32::from_bits(word).is_finite() {
                    return Err(format!("row {row}, column {column} is not finite"));
                }
            }
            Ok(())
        })?;
        let (some, of) = (self.sampled(got, side), &self.gradients[side as usize]);
        let what = format!("{side:?} gradient of {} tokens", self.shape.tokens);
        close_to_terms(&what, &some, &of.expected, &of.terms, tolerance)?;
        Ok(relative_error(&some, &of.expected, &of.terms))
    }

    /// The error of a side at the sampled rows, relative to the gradient itself.
    pub fn gradient_error(&self, got: &Outputs, side: Side) -> f64 {
        relative_error(&self.sampled(got, side), &self.gradients[side as usize].expected, &[])
    }

    /// The columns of a side at the sampled rows.
    fn sampled(&self, got: &Outputs, side: Side) -> Vec<f32> {
        let (width, keys) = (self.shape.qkv_width(), self.shape.key_offset());
        let columns = if side == Side::Query { 0..keys } else { keys..width };
        let floats = got.floats(0);
        let rows = self.sampled.iter().map(|row| &floats[row * width..][..width]);
        rows.flat_map(|row| row[columns.clone()].to_vec()).collect()
    }
}

/// All rows of a short batch; of a long one the first, the last and others at random.
fn sample(lane: &Lane, tokens: usize) -> Vec<usize> {
    let mut rows = BTreeSet::from([0, tokens - 1]);
    if tokens <= SAMPLES {
        return (0..tokens).collect();
    }
    while rows.len() < SAMPLES {
        rows.extend(lane.integers(1, tokens).iter().map(|&row| row as usize));
    }
    rows.into_iter().collect()
}

/// The columns of a side at some rows, as in d_qkv.
fn gradient(pass: &ForwardResults<'_, f64>, side: Side, rows: &[usize]) -> Vec<f64> {
    let shape = pass.shape;
    let of_row = |&row: &usize| match side {
        Side::Query => (0..shape.n_heads).flat_map(|head| pass.d_query(head, row)).collect(),
        Side::KeyValue => {
            let pairs = (0..shape.n_kv_heads).map(|head| pass.d_key_value(head, row));
            let (keys, values): (Vec<_>, Vec<_>) = pairs.map(|[key, value]| (key, value)).unzip();
            [keys.concat(), values.concat()].concat()
        }
    };
    rows.iter().flat_map(of_row).collect::<Vec<f64>>()
}
