//! Shapes and options of operations, as plain data: what a [`KernelSpec`](super::KernelSpec) is made of.

use crate::config::Activation;
use crate::format::{KvCacheFormat, WeightFormat, WriteMode};
use serde::{Deserialize, Serialize};
use std::hash::{Hash, Hasher};

/// A float of a spec. It is never NaN.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Constant(pub f64);

impl Eq for Constant {}

impl Hash for Constant {
    fn hash<H: Hasher>(&self, state: &mut H) {
        // Both zeros are equal.
        (self.0 + 0.0).to_bits().hash(state);
    }
}

/// The terms of a sum, as a product that is split along K leaves them. The kernel that reads the value adds them up in
/// their order.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct PartialSums {
    pub count: usize,
    /// Elements from one part to the next.
    pub apart: usize,
}

impl PartialSums {
    pub const WHOLE: Self = Self { count: 1, apart: 0 };
}

/// Heads of an attention layer. Fused rows are query heads | key heads | value heads.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct AttentionShape {
    pub heads: usize,
    pub kv_heads: usize,
    /// A multiple of 4, at most 256.
    pub head_dim: usize,
}

/// How a product of a query and a key becomes a score.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct Scores {
    /// Scores are squashed into ± this by tanh.
    pub soft_cap: Option<Constant>,
    /// Factor on the products; 1 / √head_dim if none is given.
    pub scale: Option<Constant>,
}

/// Attention of a batch's rows to each other.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct BatchAttention {
    pub shape: AttentionShape,
    pub scores: Scores,
    /// A query sees at most this many of the latest keys, itself among them.
    pub window: Option<usize>,
    /// The share of a query's probabilities that is left out, in the forward pass and in both of the backward one.
    pub dropout: Option<Constant>,
    /// Most rows of a batch, or 0 for many: no kernel depends on it, the choice of one may.
    pub tokens: usize,
    /// Products may round their operands to f16, where a device multiplies those faster.
    pub rounds: bool,
}

/// The layout of the rows that the backward kernels of a batch read and write. In f16 a word has two elements: only
/// where the kernels multiply by matrices.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct BackwardRows {
    pub qkv_f16: bool,
    pub d_output_f16: bool,
    pub d_qkv_f16: bool,
    /// The gradients of queries and keys are rotated back by their whole heads, so that no rotation's kernel has to: by
    /// matrices alone.
    pub rotated: bool,
}

/// The rows of a key-value cache.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct CacheRows {
    pub shape: AttentionShape,
    /// Rows after which the cache overwrites its first row; none where it holds every position.
    pub ring: Option<usize>,
}

/// Attention of new rows to a key-value cache.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct CacheAttention {
    pub shape: AttentionShape,
    pub scores: Scores,
    /// As of [`BatchAttention`].
    pub window: Option<usize>,
    /// As of [`CacheRows`].
    pub ring: Option<usize>,
}

impl CacheAttention {
    pub const fn cache(&self) -> CacheRows {
        CacheRows { shape: self.shape, ring: self.ring }
    }

    /// Most keys that a query sees of a text of up to `capacity` tokens.
    pub fn keys(&self, capacity: usize) -> usize {
        self.window.map_or(capacity, |window| window.min(capacity))
    }
}

impl Scores {
    /// Factor on the products of heads of a shape.
    pub fn factor(&self, shape: &AttentionShape) -> f64 {
        self.scale.map_or_else(|| 1.0 / (shape.head_dim as f64).sqrt(), |scale| scale.0)
    }
}

impl AttentionShape {
    /// Elements of a fused row.
    pub const fn stride(&self) -> usize {
        (self.heads + 2 * self.kv_heads) * self.head_dim
    }

    /// Column of the first key head in a fused row.
    pub const fn key_offset(&self) -> usize {
        self.heads * self.head_dim
    }

    /// Column of the first value head in a fused row.
    pub const fn value_offset(&self) -> usize {
        (self.heads + self.kv_heads) * self.head_dim
    }

    /// Elements of a row of the key-value cache: key heads | value heads.
    pub const fn cache_stride(&self) -> usize {
        2 * self.kv_heads * self.head_dim
    }

    /// The heads that the rotary embedding rotates, where it rotates whole ones.
    pub const fn rotation(&self) -> RopeShape {
        let (heads, head_dim) = (self.heads + self.kv_heads, self.head_dim);
        RopeShape { heads, head_dim, dims: head_dim, stride: self.stride() }
    }

    /// Elements of an output row.
    pub const fn width(&self) -> usize {
        self.heads * self.head_dim
    }

    /// Query heads of a key-value head.
    pub const fn members(&self) -> usize {
        self.heads / self.kv_heads
    }

    /// 32-bit words of a row of a cache.
    pub const fn row_words(&self, cache: KvCacheFormat) -> usize {
        let elements = self.cache_stride();
        match cache {
            KvCacheFormat::F32 => elements,
            KvCacheFormat::F16 => elements / 2,
            KvCacheFormat::Int8 => elements / 4 + 2 * self.kv_heads,
        }
    }
}

/// The length of a range of keys is a multiple of this. The keys that a workgroup reads per iteration divide it.
pub const RANGE_KEYS: usize = 64;
/// Elements that follow a partial sum: largest score, sum of weights, two for alignment.
pub const PARTIAL_STATE: usize = 4;

/// A masked score. It stands for minus infinity: some compilers reject the real one, and differences of it are NaN.
pub(super) const MASKED: f32 = -1e30;

/// The three kernels that share the tiling.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum AttentionPass {
    Forward,
    /// The gradient of queries.
    Query,
    /// The gradients of keys and values.
    KeyValue,
}

impl AttentionPass {
    pub const fn kernel_name(self) -> &'static str {
        match self {
            Self::Forward => "attention_forward",
            Self::Query => "attention_backward_query",
            Self::KeyValue => "attention_backward_key_value",
        }
    }
}

/// A tile of the shared scheme in `lib/attention/tile.wgsl`. In each turn, `row_groups` × `size / row_groups`
/// invocations compute `rows` × `columns` scores. The rows per group are a multiple of 4.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct AttentionTile {
    pub rows: usize,
    pub columns: usize,
    pub row_groups: usize,
    pub size: usize,
    /// True: rows stay in workgroup memory. False: they are loaded again, in parts, for each tile of columns.
    pub resident: bool,
    /// By matrices that subgroups hold. Forward with a lane for each row; backward in `row_groups` strips with two
    /// subgroups each.
    pub matrix: bool,
}

/// What a dispatch of attention's backward pass by products computes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum AttentionProducts {
    /// Probabilities and score gradients.
    Scores,
    /// From these the gradients of queries, keys and values.
    Sums,
    /// The gradients of queries alone, and those of keys and values.
    QuerySums,
    KeyValueSums,
}

/// Whose gradients of keys and values a workgroup adds up.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum KeyValueOwner {
    /// A key-value head: all query heads of its group, straight into d_qkv.
    Group,
    /// A query head: into parts that [`AttentionGroupSum`](super::AttentionGroupSum) adds up.
    Head,
}

/// The part of a mask that is given for each query and key.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum DenseMask {
    /// Intervals of keys say all.
    #[default]
    None,
    /// A bit for each key: set, the query sees it.
    Bits,
    /// An f32 for each key, added to the score.
    Additive,
}

/// Into how many ranges the keys that a query sees are cut at most, and why. How many of them have
/// work is decided in the kernels, from the tokens in the cache.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct DecodeSplits {
    pub count: usize,
    pub reason: SplitReason,
}

/// Why keys are cut into this number of ranges.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum SplitReason {
    /// This number of keys is not worth a merge.
    OneRange { keys: usize },
    /// Each range takes `each` of the `wanted` workgroups (on a CPU, invocations) that keep the device busy.
    FillsDevice { each: usize, wanted: usize, unit: &'static str },
    /// A short text's ranges, which the output product merges.
    Merged { keys: usize },
    /// The caller said so.
    Given,
}

/// What a product is added to.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Output {
    Mode(WriteMode),
    /// C = residual + product, the residual in another buffer, bound last.
    Residual,
    /// C = bias + product, a number for each column of C, bound last: only for tokens times a matrix's rows.
    Bias,
    /// C = residual + bias + product, bound in this order.
    BiasedResidual,
    /// The product is the gradient of activate(gate) · up. C = the gradients of gate | up, rows of 2 · N elements. Bound
    /// last: gate | up, and activate(gate) · up, which is computed once more. Only where
    /// [`linear_gives_gate_gradient`](super::linear_gives_gate_gradient).
    GateGradient(Activation),
    /// The product has columns gate | up, N of both. C = activate(gate) · up, rows of N / 2 elements in f16. Only where
    /// [`linear_gates`](super::linear_gates).
    Gated(Activation),
}

/// The heads that the rotary embedding rotates: those of queries and keys, at the beginning of a fused row.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct RopeShape {
    pub heads: usize,
    pub head_dim: usize,
    /// Elements that are rotated, at the beginning of each head; even.
    pub dims: usize,
    /// Elements of a row.
    pub stride: usize,
}

impl RopeShape {
    /// Whether whole heads are rotated and half a head is a multiple of four elements. Kernels that also add up partial
    /// sums rotate no other heads.
    pub const fn rotates_sums(&self) -> bool {
        self.dims == self.head_dim && self.dims.is_multiple_of(8)
    }
}

/// Where the newest row's key and value are when ranges of keys are merged.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum NewKey {
    /// In the last range.
    Among,
    /// In no range, but in the cache, which is in f32: [`AttentionDecodeQkv`](super::AttentionDecodeQkv) has left
    /// ranges of the keys before it.
    Apart,
}

/// The newest row of a text from the residual stream to ranges of keys.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct DecodeQkvShape {
    pub heads: CacheAttention,
    /// Elements of the residual stream.
    pub k: usize,
    /// What RMSNorm adds to the mean square.
    pub epsilon: Constant,
    /// Whether queries, keys and values have a bias.
    pub biased: bool,
    /// How their matrix is packed, where [`WeightFormat::packs`] rows of `k`.
    pub weights: WeightFormat,
}
