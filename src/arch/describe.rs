//! Collects the weights of an architecture in the order of the forward pass.

use super::{Attention, HeadNorms, Init, Linear, Norm, NormKind, Param, Rope, Weight, WeightId};
use crate::config::ModelConfig;

/// What the families' descriptions are written with.
pub(super) struct Describe<'a> {
    pub config: &'a ModelConfig,
    /// What its norms are.
    pub norms: NormKind,
    pub weights: Vec<Weight>,
    /// The checkpoint has the next matrices as `[in, out]`.
    pub transposed: bool,
}

impl<'a> Describe<'a> {
    pub fn new(config: &'a ModelConfig) -> Self {
        Self { config, norms: NormKind::Rms, weights: Vec::new(), transposed: false }
    }

    fn add(&mut self, weight: Weight) -> WeightId {
        self.weights.push(weight);
        self.weights.len() - 1
    }

    /// Matrices of `columns` inputs, stacked: each by its module's name and its number of outputs.
    pub fn matrix(&mut self, columns: usize, members: &[(String, usize)]) -> WeightId {
        let init = Init::Normal(self.config.initializer_range);
        let transposed = self.transposed;
        let param = |(module, rows): &(String, usize)| Param {
            name: format!("{module}.weight"),
            shape: if transposed { vec![columns, *rows] } else { vec![*rows, columns] },
            transposed,
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
            transposed: false,
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
        self.norm_of(&[module.to_owned()], columns)
    }

    /// The two rows of a layer norm over rows of `columns` elements.
    pub fn layer_norm(&mut self, module: &str, columns: usize) -> Norm {
        let params = vec![
            vector(module, "weight", columns, Init::Ones),
            vector(module, "bias", columns, Init::Zeros),
        ];
        let weight = self.add(Weight { params, rows: 2, columns, decay: false });
        Norm { weight, epsilon: self.config.rms_norm_eps, kind: NormKind::Layer }
    }

    /// Weights of norms, stacked, by their modules.
    fn norm_of(&mut self, modules: &[String], columns: usize) -> Norm {
        // Norms begin as those of weight 1.
        let init = if self.norms == NormKind::RmsPlusOne { Init::Zeros } else { Init::Ones };
        let params = modules.iter().map(|module| vector(module, "weight", columns, init)).collect();
        let weight = self.add(Weight { params, rows: modules.len(), columns, decay: false });
        Norm { weight, epsilon: self.config.rms_norm_eps, kind: self.norms }
    }

    /// Norms of each head's queries and keys, by the modules of both.
    pub fn head_norms(&mut self, block: &str, modules: [&str; 2]) -> HeadNorms {
        let modules = modules.map(|module| format!("{block}.{module}"));
        self.norm_of(&modules, self.config.head_dim)
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

    /// A product with matrices of `columns` inputs, stacked, and with their biases if there are any.
    pub fn linear(&mut self, columns: usize, members: &[(String, usize)], biased: bool) -> Linear {
        let weight = self.matrix(columns, members);
        Linear { weight, bias: biased.then(|| self.bias(members)) }
    }
}

fn vector(module: &str, what: &str, columns: usize, init: Init) -> Param {
    Param { name: format!("{module}.{what}"), shape: vec![columns], transposed: false, init }
}
