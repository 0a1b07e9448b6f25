//! Collects the weights of an architecture in the order of the forward pass.

use super::{Attention, HeadNorms, Init, Norm, NormKind, Param, Rope, Weight, WeightId};
use crate::config::ModelConfig;

/// What the families' descriptions are written with.
pub(super) struct Describe<'a> {
    pub config: &'a ModelConfig,
    /// What its norms are.
    pub norms: NormKind,
    pub weights: Vec<Weight>,
}

impl<'a> Describe<'a> {
    pub fn new(config: &'a ModelConfig) -> Self {
        Self { config, norms: NormKind::Rms, weights: Vec::new() }
    }

    fn add(&mut self, weight: Weight) -> WeightId {
        self.weights.push(weight);
        self.weights.len() - 1
    }

    /// Matrices of `columns` inputs, stacked: each by its module's name and its number of outputs.
    pub fn matrix(&mut self, columns: usize, members: &[(String, usize)]) -> WeightId {
        let init = Init::Normal(self.config.initializer_range);
        let param = |(module, rows): &(String, usize)| Param {
            name: format!("{module}.weight"),
            shape: vec![*rows, columns],
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
        let param = |(module, rows): &(String, usize)| Param {
            name: format!("{module}.bias"),
            shape: vec![*rows],
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
        self.norm_of(vec![module.to_owned()], columns)
    }

    /// Weights of norms, stacked, by their modules.
    fn norm_of(&mut self, modules: Vec<String>, columns: usize) -> Norm {
        let (kind, rows) = (self.norms, modules.len());
        // Norms begin as those of weight 1.
        let init = match kind {
            NormKind::Rms => Init::Ones,
            NormKind::RmsPlusOne => Init::Zeros,
        };
        let param = |module| Param { name: format!("{module}.weight"), shape: vec![columns], init };
        let params = modules.into_iter().map(param).collect();
        let weight = self.add(Weight { params, rows, columns, decay: false });
        Norm { kind, weight, epsilon: self.config.rms_norm_eps }
    }

    /// Norms of each head's queries and keys, by the modules of both.
    pub fn head_norms(&mut self, block: &str, modules: [&str; 2]) -> HeadNorms {
        let modules = modules.map(|module| format!("{block}.{module}")).to_vec();
        self.norm_of(modules, self.config.head_dim)
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
        }
    }

    pub fn rope(&self) -> Rope {
        Rope { head_dim: self.config.head_dim, config: self.config.rope }
    }
}
