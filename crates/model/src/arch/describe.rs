//! Collects the weights of an architecture in the order of the forward pass.

use super::{
    Architecture, Attention, AttentionBlock, BlockNorms, FeedForward, HeadNorms, Init, Layer,
    Linear, Norm, NormKind, Param, Rope, Stored, Weight, WeightId,
};
use crate::config::ModelConfig;

/// What the families' descriptions are written with.
#[derive(Debug)]
pub struct Describe<'a> {
    pub config: &'a ModelConfig,
    /// What its norms are.
    pub norms: NormKind,
    /// What its norms add to the mean square.
    pub epsilon: f64,
    pub weights: Vec<Weight>,
    /// How the checkpoint has the next products.
    pub stored: Stored,
}

/// A layer of layer norms and products with biases, without a gate: its modules, by their names in its block.
#[derive(Debug)]
pub struct Modules<'a> {
    pub block: String,
    /// Queries, keys and values, each with its number of outputs.
    pub qkv: &'a [(&'a str, usize)],
    pub output: &'a str,
    /// Before attention, and before the feed-forward block.
    pub norms: [&'a str; 2],
    pub up: &'a str,
    pub down: &'a str,
    /// How the checkpoint has queries, keys and values, and the other products.
    pub stored: [Stored; 2],
    /// Whether queries, keys and values have biases, and the output.
    pub biased: [bool; 2],
    pub parallel: bool,
}

impl<'a> Describe<'a> {
    pub fn new(config: &'a ModelConfig) -> Self {
        let epsilon = config.rms_norm_eps;
        Self { config, norms: NormKind::Rms, epsilon, weights: Vec::new(), stored: Stored::Rows }
    }

    fn add(&mut self, weight: Weight) -> WeightId {
        self.weights.push(weight);
        self.weights.len() - 1
    }

    /// Matrices of `columns` inputs, stacked: each by its module's name and its number of outputs.
    pub fn matrix(&mut self, columns: usize, members: &[(String, usize)]) -> WeightId {
        let init = Init::Normal(self.config.initializer_range);
        let stored = self.stored;
        let by_columns = stored == Stored::Columns;
        let param = |(module, rows): &(String, usize)| Param {
            name: format!("{module}.weight"),
            shape: if by_columns { vec![columns, *rows] } else { vec![*rows, columns] },
            stored,
            init,
        };
        self.add(Weight {
            params: members.iter().map(param).collect(),
            rows: members.iter().map(|(_, rows)| rows).sum(),
            columns,
            decay: true,
        })
    }

    /// The biases of those modules, stacked as [`Describe::matrix`] stacks their matrices.
    pub fn bias(&mut self, members: &[(String, usize)]) -> WeightId {
        let stored = self.stored.by_rows();
        let param = |(module, rows): &(String, usize)| Param {
            name: format!("{module}.bias"),
            shape: vec![*rows],
            stored,
            init: Init::Zeros,
        };
        self.add(Weight {
            params: members.iter().map(param).collect(),
            rows: members.iter().map(|(_, rows)| rows).sum(),
            columns: 1,
            decay: false,
        })
    }

    /// The weight of a norm over rows of `columns` elements.
    pub fn norm(&mut self, module: &str, columns: usize) -> Norm {
        if self.norms == NormKind::Layer {
            return self.layer_norm(module, columns);
        }
        self.norm_of(&[module.to_owned()], columns)
    }

    /// The two rows of a layer norm over rows of `columns` elements.
    pub fn layer_norm(&mut self, module: &str, columns: usize) -> Norm {
        let params = vec![
            vector(module, "weight", columns, Init::Ones),
            vector(module, "bias", columns, Init::Zeros),
        ];
        let weight = self.add(Weight { params, rows: 2, columns, decay: false });
        Norm { weight, epsilon: self.epsilon, kind: NormKind::Layer }
    }

    /// Weights of norms, stacked, by their modules.
    fn norm_of(&mut self, modules: &[String], columns: usize) -> Norm {
        // Norms begin as those of weight 1.
        let init = if self.norms == NormKind::RmsPlusOne { Init::Zeros } else { Init::Ones };
        let params = modules.iter().map(|module| vector(module, "weight", columns, init)).collect();
        let weight = self.add(Weight { params, rows: modules.len(), columns, decay: false });
        Norm { weight, epsilon: self.epsilon, kind: self.norms }
    }

    /// Norms of queries and keys, of `columns` elements at a time, by the modules of both.
    pub fn head_norms(&mut self, block: &str, columns: usize) -> HeadNorms {
        let modules = ["q_norm", "k_norm"].map(|module| format!("{block}.{module}"));
        self.norm_of(&modules, columns)
    }

    /// Attention of the layer of this index.
    pub fn attention(&self, layer: usize) -> Attention {
        Attention {
            heads: self.config.num_attention_heads,
            kv_heads: self.config.num_key_value_heads,
            head_dim: self.config.head_dim,
            window: self.config.window(layer),
            soft_cap: self.config.attn_logit_softcapping,
            scale: self.config.query_pre_attn_scalar.map(|scalar| 1.0 / libm::sqrt(scalar as f64)),
            rope: None,
        }
    }

    pub fn rope(&self) -> Rope {
        Rope { head_dim: self.config.rotary_dims(), config: self.config.rope.clone() }
    }

    pub fn plain_layer(&mut self, attention: Attention, modules: &Modules) -> Layer {
        let (hidden, feed) = (self.config.hidden_size, self.config.intermediate_size);
        let name = |module: &str| format!("{}.{module}", modules.block);
        let qkv: Vec<_> = modules.qkv.iter().map(|(module, rows)| (name(module), *rows)).collect();
        let ([of_attention, of_mlp], [heads, others]) = (modules.norms, modules.stored);
        let attention_norm = self.layer_norm(&name(of_attention), hidden);
        self.stored = heads;
        let qkv = self.linear(hidden, &qkv, modules.biased[0]);
        self.stored = others;
        let output =
            self.linear(attention.width(), &[(name(modules.output), hidden)], modules.biased[1]);
        let mlp_norm = self.layer_norm(&name(of_mlp), hidden);
        let gate_up = self.linear(hidden, &[(name(modules.up), feed)], true);
        let down = self.linear(feed, &[(name(modules.down), hidden)], true);
        self.stored = Stored::Rows;
        let before = |norm| BlockNorms { before: Some(norm), ..BlockNorms::default() };
        let (activation, norms) = (self.config.hidden_act, before(mlp_norm));
        Layer {
            attention: Some(AttentionBlock {
                norms: before(attention_norm),
                qkv,
                head_norms: None,
                attention,
                output,
            }),
            parallel: modules.parallel,
            mlp: Some(FeedForward { norms, gate_up, gated: false, feed, activation, down }),
        }
    }

    /// The model of these parts, without what only some families have. A head that is not the embedding is the module
    /// `head`.
    pub fn architecture(
        mut self,
        embedding: WeightId,
        layers: Vec<Layer>,
        final_norm: impl Into<Option<Norm>>,
        head: &str,
    ) -> Architecture {
        let config = self.config;
        let (vocab_size, hidden) = (config.vocab_size, config.hidden_size);
        let head = if config.tie_word_embeddings {
            embedding
        } else {
            self.matrix(hidden, &[(head.into(), vocab_size)])
        };
        Architecture {
            vocab_size,
            hidden,
            positions: config.max_position_embeddings,
            ropes: vec![],
            embedding,
            padding: None,
            embedding_scale: None,
            stream_scale: None,
            position_embedding: None,
            layers,
            final_norm: final_norm.into(),
            head,
            head_scale: None,
            logit_soft_cap: None,
            low_rank: vec![],
            weights: self.weights,
        }
    }

    /// A product with matrices of `columns` inputs, stacked, and with their biases if there are any.
    pub fn linear(&mut self, columns: usize, members: &[(String, usize)], biased: bool) -> Linear {
        let weight = self.matrix(columns, members);
        Linear { weight, bias: biased.then(|| self.bias(members)) }
    }
}

fn vector(module: &str, what: &str, columns: usize, init: Init) -> Param {
    let (name, stored) = (format!("{module}.{what}"), Stored::Rows);
    Param { name, shape: vec![columns], stored, init }
}
