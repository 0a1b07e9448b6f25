//! What a model is, as data: its parameters, its layers, what each layer's attention and feed-forward block look like.
//! One file per model family. All that comes after is derived from [`Architecture`] and knows no family by name.

mod describe;
mod family;
mod gemma;
pub mod gguf;
mod gpt2;
mod gpt_neo;
mod gpt_neox;
mod granite;
mod llama;
mod lora;
mod olmo2;
mod phi3;
mod qwen;
mod rope;
mod smollm3;
mod stablelm;
mod stored;
mod tinyloom;

pub use crate::config::DropoutRates;
pub use family::Family;
pub use lora::{LowRank, LowRankGroup};
pub use rope::Rope;
pub use stored::{Stored, Swap};
pub use tinyloom::LEARNED_POSITIONS;

use crate::config::{Activation, ModelConfig};
use crate::error::{Error, Result};
use describe::Describe;

/// Every family, in the order of messages. The first stands for a missing `model_type`.
pub static FAMILIES: &[&Family] = &[
    &llama::LLAMA,
    &llama::MISTRAL,
    &qwen::QWEN2,
    &qwen::QWEN3,
    &gpt2::GPT2,
    &gpt_neo::GPT_NEO,
    &gpt_neox::GPT_NEOX,
    &gemma::GEMMA,
    &gemma::GEMMA2,
    &gemma::GEMMA3,
    &smollm3::SMOLLM3,
    &olmo2::OLMO2,
    &granite::GRANITE,
    &stablelm::STABLELM,
    &phi3::PHI3,
    &tinyloom::TINYLOOM,
];

/// How a new parameter is filled.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Init {
    /// Normal with this standard deviation.
    Normal(f64),
    /// Uniform within ± this.
    Uniform(f64),
    Ones,
    Zeros,
}

/// A tensor of the checkpoint.
#[derive(Clone, Debug, PartialEq)]
pub struct Param {
    /// The name in the checkpoint.
    pub name: String,
    /// In the checkpoint, row-major: `[out, in]` of a matrix, or `[in, out]` as `stored` says; `[n]` of a vector.
    pub shape: Vec<usize>,
    /// How the checkpoint has the rows that kernels see.
    pub stored: Stored,
    pub init: Init,
}

impl Param {
    /// Its rows in its weight, which has `columns` columns.
    pub fn rows(&self, columns: usize) -> usize {
        self.shape.iter().product::<usize>() / columns
    }
}

/// Index into [`Architecture::weights`].
pub type WeightId = usize;

/// Index into [`Architecture::ropes`].
pub type RopeId = usize;

/// Parameters that kernels see as one matrix, their rows stacked in this order: those that are
/// multiplied by the same input. The vector of a norm is a matrix of one row, a bias one of one column.
#[derive(Clone, Debug, PartialEq)]
pub struct Weight {
    pub params: Vec<Param>,
    pub rows: usize,
    pub columns: usize,
    /// Whether the optimizer decays it.
    pub decay: bool,
}

/// How rows are normalised.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NormKind {
    /// By the root of their mean square, times the weight.
    Rms,
    /// By the root of their mean square, times 1 + the weight.
    RmsPlusOne,
    /// By their mean and deviation. The weight has two rows: factors, then what is added.
    Layer,
}

/// Normalisation of rows, by a weight.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Norm {
    pub weight: WeightId,
    pub epsilon: f64,
    pub kind: NormKind,
}

/// Norms of queries and of keys. The weight has two rows, queries' first. A norm is over as many elements as a row has:
/// those of one head, or of all heads where queries and keys have the same number of heads.
pub type HeadNorms = Norm;

/// Heads, and what a query may see.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Attention {
    pub heads: usize,
    pub kv_heads: usize,
    pub head_dim: usize,
    /// A position sees at most this many of the latest positions, itself among them.
    pub window: Option<usize>,
    /// Scores are squashed into ± this by tanh.
    pub soft_cap: Option<f64>,
    /// Factor on the products of queries and keys; 1 / √head_dim if none is given.
    pub scale: Option<f64>,
    /// What rotates queries and keys by their positions.
    pub rope: Option<RopeId>,
}

impl Attention {
    /// Elements of a row of queries, or of attention's output.
    pub const fn width(&self) -> usize {
        self.heads * self.head_dim
    }

    /// Elements of a row of queries, keys and values.
    pub const fn stride(&self) -> usize {
        (self.heads + 2 * self.kv_heads) * self.head_dim
    }
}

/// A product with a matrix, and the bias that is added to it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Linear {
    pub weight: WeightId,
    pub bias: Option<WeightId>,
}

/// Norms of a block, each of which may be absent.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct BlockNorms {
    /// Norm of what the block reads.
    pub before: Option<Norm>,
    /// Norm of what it adds.
    pub behind: Option<Norm>,
    /// Norm of the sum, the residual stream. What follows reads the result.
    pub of_sum: Option<Norm>,
}

/// The block of a layer whose positions attend to each other.
#[derive(Clone, Debug, PartialEq)]
pub struct AttentionBlock {
    pub norms: BlockNorms,
    /// Queries, keys and values, stacked.
    pub qkv: Linear,
    pub head_norms: Option<HeadNorms>,
    pub attention: Attention,
    pub output: Linear,
}

/// The block of a layer that each position has for itself.
#[derive(Clone, Debug, PartialEq)]
pub struct FeedForward {
    pub norms: BlockNorms,
    /// Gate and up, stacked; where the block is not gated up alone.
    pub gate_up: Linear,
    pub gated: bool,
    /// Elements of a row that the activation gives.
    pub feed: usize,
    pub activation: Activation,
    pub down: Linear,
}

/// One decoder layer: `x + norm(attention(norm(x)))`, then `x + norm(mlp(norm(x)))`, or both added to one x. One block
/// may be absent, and each norm.
#[derive(Clone, Debug, PartialEq)]
pub struct Layer {
    pub attention: Option<AttentionBlock>,
    /// The feed-forward block reads what attention reads: `x + attention(norm(x)) + mlp(norm(x))`.
    pub parallel: bool,
    pub mlp: Option<FeedForward>,
}

impl Layer {
    /// Its matrices, in the order of the forward pass.
    pub fn matrices(&self) -> impl Iterator<Item = WeightId> {
        let attention = self.attention.iter().flat_map(|it| [it.qkv.weight, it.output.weight]);
        let mlp = self.mlp.iter().flat_map(|it| [it.gate_up.weight, it.down.weight]);
        attention.chain(mlp)
    }

    /// Heads, and what a query may see, if it has attention.
    pub fn heads(&self) -> Option<Attention> {
        self.attention.as_ref().map(|block| block.attention)
    }

    /// The first of its weights.
    fn first(&self) -> Option<WeightId> {
        let attention = self.attention.as_ref().map(|it| (it.norms.before, it.qkv.weight));
        let mlp = self.mlp.as_ref().map(|it| (it.norms.before, it.gate_up.weight));
        attention.or(mlp).map(|(norm, matrix)| norm.map_or(matrix, |norm| norm.weight))
    }
}

/// A decoder-only language model.
#[derive(Clone, Debug, PartialEq)]
pub struct Architecture {
    /// In the order of the forward pass.
    pub weights: Vec<Weight>,
    pub vocab_size: usize,
    pub hidden: usize,
    pub positions: usize,
    /// The rotary embeddings of its layers: each has a table of angles.
    pub ropes: Vec<Rope>,
    pub embedding: WeightId,
    /// The token whose look-ups have no gradient, as `padding_idx` of PyTorch's embedding.
    pub padding: Option<usize>,
    /// Factor on the embeddings.
    pub embedding_scale: Option<f64>,
    /// The residual stream times this is what hidden states are; none: they are the same.
    pub stream_scale: Option<f64>,
    /// A row for each position, added to the embedding.
    pub position_embedding: Option<WeightId>,
    pub layers: Vec<Layer>,
    /// Norm of what the head reads.
    pub final_norm: Option<Norm>,
    /// Equal to `embedding` when the embeddings are tied.
    pub head: WeightId,
    /// Factor on what the head reads.
    pub head_scale: Option<f64>,
    /// Logits are squashed into ± this by tanh.
    pub logit_soft_cap: Option<f64>,
    /// What an adapter adds, in the order of its targets; its weights are the last ones.
    pub low_rank: Vec<LowRank>,
}

impl Architecture {
    pub fn of(config: &ModelConfig) -> Self {
        (config.family.describe)(Describe::new(config))
    }

    pub fn params(&self) -> impl Iterator<Item = &Param> {
        self.weights.iter().flat_map(|weight| &weight.params)
    }

    /// Name and shape of every tensor of the checkpoint, in the order of the forward pass.
    pub fn tensors(&self) -> Vec<(String, Vec<usize>)> {
        self.params().map(|param| (param.name.clone(), param.shape.clone())).collect()
    }

    /// Number of parameters; a tied embedding counts once.
    pub fn parameter_count(&self) -> u64 {
        let elements = |param: &Param| param.shape.iter().map(|&n| n as u64).product::<u64>();
        self.params().map(elements).sum()
    }

    /// The first weight that a trainer trains. All after it are trained too: those of a LoRA adapter, or of the model.
    /// With `last_layers` they are those of this many last layers, and of what follows the layers.
    ///
    /// # Errors
    /// `invalid-options` for a number of layers that the model has not, and for any where an adapter is trained.
    pub fn first_trained(&self, last_layers: Option<usize>) -> Result<WeightId> {
        let adapter = self.low_rank.first();
        let Some(count) = last_layers else { return Ok(adapter.map_or(0, |low| low.a)) };
        let layers = self.layers.len();
        if adapter.is_some() {
            return Err(Error::options(
                "lastLayers is of a model's trainer; an adapter's targets say what of it is trained",
            ));
        }
        if !(1..=layers).contains(&count) {
            return Err(Error::options(format!(
                "lastLayers is {count}; it must be from 1 to num_hidden_layers, {layers}"
            )));
        }
        let empty = || Error::internal(format!("layer {} has no weights", layers - count));
        self.layers[layers - count].first().ok_or_else(empty)
    }

    /// Whether products, or gathers of embeddings, read a weight's rows: what a model may hold packed.
    pub fn is_matrix(&self, weight: WeightId) -> bool {
        weight == self.embedding || self.multiplies(weight)
    }

    /// Whether products read a weight's rows.
    pub fn multiplies(&self, weight: WeightId) -> bool {
        weight == self.head || self.linear_weights().any(|id| id == weight)
    }

    /// Whether a text of `tokens` tokens is rotated by the angles of long texts.
    pub fn is_long(&self, tokens: usize) -> bool {
        tokens > self.short_tokens()
    }

    /// Most tokens of a text that turns by the angles of short ones.
    pub fn short_tokens(&self) -> usize {
        let bounds = self.ropes.iter().filter_map(|rope| rope.config.short_tokens());
        bounds.min().unwrap_or(usize::MAX)
    }

    /// Positions that a layer's cache must reach back to, if all attention has a window.
    pub fn window(&self) -> Option<usize> {
        let attention = self.layers.iter().filter_map(Layer::heads);
        let windows: Option<Vec<usize>> = attention.map(|attention| attention.window).collect();
        windows?.into_iter().max()
    }
}
