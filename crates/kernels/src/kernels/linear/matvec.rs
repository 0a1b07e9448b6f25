//! Products of decoded rows with a matrix: what they compute, and what the forms for one row and for several share.

use crate::config::Activation;
use crate::error::{Error, Result};
use crate::format::WeightFormat;
use crate::kernels::compose::{Binding, Composer, read, read_write, uniform};
use crate::kernels::modules::{UNIT, activation_module, key_rows, matrix_units};
use crate::kernels::shape::{CacheAttention, CacheRows, Constant, DecodeSplits, NewKey};

/// What a matrix multiplies.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum MatvecInput {
    Plain,
    /// The RMSNorm of the row; the norm's weight is bound too.
    Norm {
        epsilon: Constant,
    },
    /// Partial results of attention over ranges of keys. `step` is bound last. Where the newest key is apart, the row's
    /// queries and the cache are bound before it. Only where [`matvec_merges`](crate::kernels::matvec_merges).
    PartialSoftmax(CacheAttention, DecodeSplits, NewKey),
}

/// What becomes of the products.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum MatvecOutput {
    Plain,
    /// Added to what the output holds. For one row, not together with a norm.
    Added,
    /// Added to a residual. For one row, not together with a norm.
    Residual,
    /// Added to a bias, which all rows share; with a norm as a residual is.
    Bias,
    /// Added to both: the bias is bound after the residual.
    BiasedResidual,
    /// N results of 2 · N rows, `activate(gate) · up`. For one row, only together with a norm.
    Gated(Activation),
    /// N pairs of the query, key and value heads of a text's newest row, rotated. Keys and values are appended to a
    /// cache in f32. Only together with a norm. The uniform is `step`. The rotation and the cache are bound after it,
    /// and for several rows the documents.
    Heads(CacheRows),
    /// [`Self::Heads`] with a bias on the products.
    BiasedHeads(CacheRows),
}

/// The product of a row of `k` elements with a matrix of `n` results.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Matvec {
    pub n: usize,
    pub k: usize,
    /// The first result's index among those of all parts of a matrix.
    pub first: usize,
    pub input: MatvecInput,
    pub output: MatvecOutput,
    /// How the matrix is packed, where [`WeightFormat::packs`] rows of `k`.
    pub weights: WeightFormat,
}

/// The products of up to `rows` rows of `k` elements with one matrix.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct MatvecRows {
    pub n: usize,
    pub k: usize,
    pub rows: usize,
    /// Elements from one row of the result to the next.
    pub stride: usize,
    pub input: MatvecInput,
    pub output: MatvecOutput,
    pub weights: WeightFormat,
}

impl MatvecInput {
    pub(super) const fn is_normed(self) -> bool {
        matches!(self, Self::Norm { .. })
    }

    pub(super) const fn merges(self) -> bool {
        matches!(self, Self::PartialSoftmax(..))
    }
}

impl MatvecOutput {
    /// Rows of the matrix in each of N results.
    pub(crate) const fn products(self) -> usize {
        match self {
            Self::Plain | Self::Added | Self::Residual | Self::Bias | Self::BiasedResidual => 1,
            Self::Gated(_) | Self::Heads(_) | Self::BiasedHeads(_) => 2,
        }
    }

    pub(crate) const fn heads(self) -> Option<CacheRows> {
        match self {
            Self::Heads(heads) | Self::BiasedHeads(heads) => Some(heads),
            _ => None,
        }
    }

    pub(crate) const fn has_residual(self) -> bool {
        matches!(self, Self::Residual | Self::BiasedResidual)
    }

    pub(crate) const fn is_biased(self) -> bool {
        matches!(self, Self::Bias | Self::BiasedResidual | Self::BiasedHeads(_))
    }

    /// What a variant for one row is called by.
    pub(super) const fn fused(self, normed: bool) -> &'static str {
        match self {
            Self::Added => ", added",
            Self::Residual => ", residual",
            Self::Bias => ", bias",
            Self::BiasedResidual => ", residual and bias",
            Self::Gated(_) => ", norm and activation fused",
            Self::Heads(_) => ", norm, rotation and append fused",
            Self::BiasedHeads(_) => ", norm, bias, rotation and append fused",
            Self::Plain if normed => ", norm fused",
            Self::Plain => "",
        }
    }
}

impl Matvec {
    /// The operands, of one row or of several. `c` is a part of the results of several, which `range` tells.
    pub(super) fn operands(&self, batched: bool) -> Result<Vec<Binding>> {
        let Self { input, output, .. } = *self;
        let (normed, merges, heads) = (input.is_normed(), input.merges(), output.heads());
        let fits = match output {
            MatvecOutput::Plain => true,
            MatvecOutput::Added => !normed && !batched,
            _ if batched => true,
            MatvecOutput::Residual | MatvecOutput::Bias | MatvecOutput::BiasedResidual => !normed,
            MatvecOutput::Gated(_) | MatvecOutput::Heads(_) | MatvecOutput::BiasedHeads(_) => {
                normed
            }
        };
        if !fits || merges && batched {
            return Err(Error::internal("no product has both this input and this output"));
        }
        let first = read(if merges { "partials" } else { "a" });
        let matrix = read(if self.packed() { "packed" } else { "b" });
        let mut operands = vec![first, matrix, read_write("c")];
        operands.extend(normed.then_some(read("norm_weight")));
        operands.extend(output.has_residual().then_some(read("residual")));
        if heads.is_some() {
            let rotation = read(if batched { "table" } else { "angles" });
            operands.extend([uniform("step"), rotation, read_write("cache")]);
            operands.extend(batched.then_some(read("documents")));
        }
        operands.extend(output.is_biased().then_some(read("bias")));
        if matches!(input, MatvecInput::PartialSoftmax(.., NewKey::Apart)) {
            operands.extend([read("query"), read("cache")]);
        }
        operands.extend(merges.then_some(uniform("step")));
        operands.extend((batched && heads.is_none()).then_some(uniform("range")));
        Ok(operands)
    }

    pub(super) const fn packed(&self) -> bool {
        self.weights.packs(self.k)
    }

    /// Elements of a row of the matrix that are read together.
    pub(super) const fn unit(&self) -> usize {
        if self.packed() { UNIT } else { 4 }
    }

    /// How the matrix is read, as a variant's name says it.
    pub(super) const fn width(&self) -> &'static str {
        match (self.packed(), self.k.is_multiple_of(4)) {
            (true, _) => self.weights.name(),
            (false, true) => "vec4",
            (false, false) => "scalar",
        }
    }

    /// Says how rows and matrix are read, with the norm between them, which rows belong to a result, and what becomes of
    /// it. `stride` is from one row of the results to the next, of one row 0. By units an f32 matrix is read as a packed
    /// one is.
    pub(super) fn text(&self, composer: Composer, stride: usize, by_units: bool) -> Composer {
        let Self { n, k, first, input, output, weights } = *self;
        let composer = norm_operand(composer, input, k.is_multiple_of(4))
            .size("N", n)
            .size("K", k)
            .size("FIRST", first)
            .size("STRIDE", stride)
            .when("BATCHED", stride > 0)
            .when("BY_UNITS", by_units)
            .when("HEADS_OF_ROW", output.heads().is_some())
            .when("GATED", matches!(output, MatvecOutput::Gated(_)))
            .when("ADDED_IN_PLACE", output == MatvecOutput::Added)
            .when("RESIDUAL", output.has_residual())
            .when("BIASED", output.is_biased());
        let composer = match (output, output.heads()) {
            (MatvecOutput::Gated(activation), _) => activation_module(composer, activation),
            (_, Some(CacheRows { shape, ring })) => key_rows(composer, ring)
                .size("HEADS", shape.heads)
                .size("KV_HEADS", shape.kv_heads)
                .size("HEAD_DIM", shape.head_dim)
                .size("HALF", shape.head_dim / 2),
            _ => composer,
        };
        if by_units {
            matrix_units(composer, weights, (output.products() * n, k))
        } else {
            composer
        }
    }
}

/// Says whether a norm is in front of a product, and its epsilon.
pub(in crate::kernels) fn norm_operand(
    composer: Composer,
    input: MatvecInput,
    by_vectors: bool,
) -> Composer {
    let composer = composer.vectors(if by_vectors { 4 } else { 1 });
    match input {
        MatvecInput::Norm { epsilon } => {
            composer.when("NORMED", true).float("EPSILON", epsilon.0 as f32)
        }
        MatvecInput::Plain | MatvecInput::PartialSoftmax(..) => composer.when("NORMED", false),
    }
}
