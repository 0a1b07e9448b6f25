//! The kernels' shapes, of what a model has: both the pass over layouts and lowering ask kernels by these.

use crate::arch::{Architecture, Attention, WeightId};
use crate::graph::MlpActivation;
use crate::kernels::{
    ActivationWidth, AttentionShape, BatchAttention, CacheAttention, Constant, Element, Form,
    LinearShape, LogitRow, PartialSums, RopeShape, Scores, WeightFormat,
};
use crate::params::Params;
use crate::plan::{Buffer, Range, Slice};

pub const fn attention_shape(attention: Attention) -> AttentionShape {
    let Attention { heads, kv_heads, head_dim, .. } = attention;
    AttentionShape { heads, kv_heads, head_dim }
}

fn scores(attention: Attention) -> Scores {
    // As kernels have them, in f32.
    let constant = |x: f64| Constant(f64::from(x as f32));
    Scores { soft_cap: attention.soft_cap.map(constant), scale: attention.scale.map(constant) }
}

/// Attention of batches of up to `tokens` rows.
pub fn batch_attention(attention: Attention, tokens: usize) -> BatchAttention {
    let (shape, window) = (attention_shape(attention), attention.window);
    let scores = scores(attention);
    BatchAttention { shape, scores, window, tokens, ..BatchAttention::default() }
}

/// Attention to a cache, which may be a ring of `ring` rows.
pub fn cache_attention(attention: Attention, ring: Option<usize>) -> CacheAttention {
    let (shape, window) = (attention_shape(attention), attention.window);
    CacheAttention { shape, scores: scores(attention), window, ring }
}

pub fn rope_shape(architecture: &Architecture, attention: Attention) -> RopeShape {
    RopeShape {
        heads: attention.heads + attention.kv_heads,
        head_dim: attention.head_dim,
        dims: attention.rope.map_or(0, |rope| architecture.ropes[rope].head_dim),
        stride: attention.stride(),
    }
}

pub const fn activation_width(
    mlp: MlpActivation,
    half: bool,
    sums: PartialSums,
) -> ActivationWidth {
    let MlpActivation { width, activation, gated } = mlp;
    ActivationWidth { width, activation, gated, half, sums }
}

/// The product with the matrix of gate and up, as its kernel goes on to the activation's result.
pub const fn gated_shape(gate_up: LinearShape) -> LinearShape {
    LinearShape { c_stride: gate_up.n / 2, c: Element::F16, ..gate_up }
}

/// Whether the kernels of an activation can add up partial sums.
pub const fn activation_sums(mlp: MlpActivation) -> bool {
    activation_width(mlp, false, PartialSums::WHOLE).by_quads()
}

/// A row of logits that a plan keeps to itself: rows of fours are read and written by vectors.
pub const fn padded_logits(vocabulary: usize) -> LogitRow {
    LogitRow { vocabulary, stride: vocabulary.next_multiple_of(4) }
}

/// A part of a weight in a set of shards that has the weights' layout.
pub fn weight_part(
    params: &Params,
    weight: WeightId,
    part: usize,
    set: fn(usize) -> Buffer,
) -> Slice {
    let matrix = &params.matrices[weight];
    let part = &matrix.parts[part];
    Slice::new(set(part.shard), part.offset as u64 * 4, (part.rows * matrix.cols) as u64 * 4)
}

/// Rows of tokens, with a column for each row of a matrix.
#[derive(Clone, Copy, Debug)]
pub struct TokenRows {
    pub rows: Range,
    /// Elements from one row to the next; those past the matrix's rows are padding.
    pub stride: usize,
    /// The format of the first operand, and in a product of two activations of the second.
    pub operands: [Element; 2],
    /// The format of the result.
    pub result: Element,
}

/// Chunks of `chunk` rows of logits, of `tokens` in all, each with the number of its first row.
pub fn logit_chunks(
    vocabulary: usize,
    tokens: usize,
    chunk: usize,
) -> impl Iterator<Item = TokenRows> {
    (0..tokens).step_by(chunk).map(move |row0| {
        let rows = chunk.min(tokens - row0) as u32;
        let rows = Range { row0: row0 as u32, rows, col0: 0, cols: 0 };
        let (stride, result) = (padded_logits(vocabulary).stride, Element::F32);
        TokenRows { rows, stride, operands: [result; 2], result }
    })
}

/// How a plan reads matrices.
#[derive(Clone, Copy, Debug)]
pub struct Matrices<'a> {
    pub params: &'a Params,
    /// How those are read that are held in f32.
    pub weights: WeightFormat,
    /// Products read [`Buffer::Mirror`], where their rows are of vectors, and may round operands to f16.
    pub mixed: bool,
    /// Products with a matrix that is not read in f32 may round what they multiply it with to f16.
    pub rounds: bool,
}

impl Matrices<'_> {
    /// How a matrix is read: as it is held, and an adapter's stays as it is.
    pub fn format(&self, weight: WeightId) -> WeightFormat {
        let as_held = self.params.weights != WeightFormat::F32;
        if as_held || self.params.architecture.is_low_rank(weight) {
            return self.params.matrices[weight].format;
        }
        self.weights
    }

    /// Whether rows may be rounded to f16 where no matrix is read, because most matrices are read with less than f32.
    pub fn rounds_rows(&self) -> bool {
        let held = self.params.weights;
        self.rounds && [held, self.weights].iter().any(|format| *format != WeightFormat::F32)
    }

    /// Whether a product with a matrix may round what it multiplies that with.
    pub fn rounds_with(&self, weight: WeightId) -> bool {
        self.mixed || self.rounds && self.packed(weight, 0).is_some()
    }

    /// A part of a matrix packed, where its rows are.
    pub fn packed(&self, weight: WeightId, part: usize) -> Option<Slice> {
        let (matrix, format) = (&self.params.matrices[weight], self.format(weight));
        if !format.packs(matrix.cols) {
            return None;
        }
        let (number, offset) = match self.params.weights {
            WeightFormat::F32 => self.params.packed_part(format, weight, part)?,
            _ => (matrix.first_part + part, 0),
        };
        let bytes = format.bytes(matrix.parts[part].rows, matrix.cols);
        Some(Slice::new(Buffer::Packed(number), offset, bytes))
    }

    /// Whether products of many rows read a matrix as one part in f32, or as that rounded to f16.
    pub fn is_plain(&self, weight: WeightId) -> bool {
        let matrix = &self.params.matrices[weight];
        matrix.format == WeightFormat::F32
            && matrix.parts.len() == 1
            && self.packed(weight, 0).is_none()
    }

    /// A product as it reads its matrix: as it is held, rounded to f16, or packed.
    pub fn read(&self, weight: WeightId, shape: LinearShape) -> LinearShape {
        let b = match self.params.matrices[weight].format {
            WeightFormat::F32 if self.mixed && shape.by_vectors() => WeightFormat::F16,
            _ if self.packed(weight, 0).is_some() => self.format(weight),
            held => held,
        };
        LinearShape { b, ..shape }
    }

    /// A product with a part of a weight, taken to be read in f32: of rows with it, of their gradients with it, or of their
    /// gradients, transposed, with the rows that it was multiplied with.
    pub fn product(
        &self,
        form: Form,
        weight: WeightId,
        part: usize,
        TokenRows { rows, stride, operands, result }: TokenRows,
    ) -> LinearShape {
        let matrix = &self.params.matrices[weight];
        let (part, cols) = (matrix.parts[part].rows, matrix.cols);
        let forward = form == Form::MatmulT;
        let (n, k) = if forward { (part, cols) } else { (cols, part) };
        let (a_stride, c_stride) = if forward { (k, stride) } else { (stride, n) };
        let f16 = form == Form::MatmulAt && operands[1] == Element::F16;
        LinearShape {
            form,
            n,
            k,
            a_stride,
            c_stride,
            tokens: rows.rows as usize,
            padded: stride > matrix.rows,
            a: operands[0],
            c: result,
            b: if f16 { WeightFormat::F16 } else { WeightFormat::F32 },
            half: self.rounds_with(weight),
        }
    }
}
