//! A LoRA adapter as part of what a model is: weights that follow the base's, and where their products are added.
//!
//! An adapted architecture is the base's with more weights: a pair (A, B) per adapted module, also
//! where several modules are stacked into one weight. The graph adds `scale · x·Aᵀ·Bᵀ` to that
//! module's columns of what the weight gives. Names and shapes are PEFT's, so that the tensors of the
//! added weights are those of `adapter_model.safetensors`.

use super::{Architecture, Init, Layer, Param, Stored, Weight, WeightId};
use crate::config::LoraConfig;
use crate::error::{Error, Result};
use std::ops::Range;

/// A product of low rank beside some rows of a weight: `y += scale · x·Aᵀ·Bᵀ` in their columns of y.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct LowRank {
    pub target: WeightId,
    /// The module's first row of the target.
    pub row0: usize,
    pub rows: usize,
    /// `[rank, columns of the target]`.
    pub a: WeightId,
    /// `[rows, rank]`.
    pub b: WeightId,
    pub scale: f64,
    /// The share of x that a training step leaves out.
    pub dropout: f64,
}

impl LowRank {
    /// Its columns of y.
    pub const fn columns(&self) -> Range<usize> {
        self.row0..self.row0 + self.rows
    }
}

/// Products of low rank beside one weight that read the same rows: neighbours in [`Architecture::low_rank`]. Their
/// short rows lie beside each other, in their order.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LowRankGroup {
    pub first: usize,
    pub count: usize,
    /// The first one's A. Their matrices are neighbours too: A and B of one module, then of the next.
    pub a: WeightId,
}

impl LowRankGroup {
    /// Most modules of one: queries, keys and values.
    pub const MOST: usize = 3;

    /// The matrices of all its modules.
    pub const fn weights(self) -> Range<WeightId> {
        self.a..self.a + 2 * self.count
    }
}

impl Architecture {
    /// The products of a group. All are of one adapter, so that rank and scale are the same.
    pub fn group(&self, group: LowRankGroup) -> &[LowRank] {
        &self.low_rank[group.first..][..group.count]
    }

    /// Columns of a group's short rows.
    pub fn short_columns(&self, group: LowRankGroup) -> usize {
        self.group(group).iter().map(|low| self.weights[low.a].rows).sum()
    }

    /// The share of a product's inputs that the adapter leaves out while it is trained.
    pub fn adapter_dropout(&self) -> f64 {
        self.low_rank.first().map_or(0.0, |low| low.dropout)
    }

    /// The products beside a weight, those that read the same rows together: without dropout all of them do, with it
    /// each has a mask of its own.
    pub fn low_rank_groups(&self, target: WeightId, masked: bool) -> Vec<LowRankGroup> {
        let own = |low: &LowRank| low.target == target;
        let Some(first) = self.low_rank.iter().position(own) else { return vec![] };
        let count = self.low_rank[first..].iter().take_while(|low| own(low)).count();
        let most = if masked { 1 } else { LowRankGroup::MOST };
        let group = |at| {
            let (first, count) = (first + at, most.min(count - at));
            LowRankGroup { first, count, a: self.low_rank[first].a }
        };
        (0..count).step_by(most).map(group).collect()
    }

    /// This model with a LoRA adapter. The base's weights keep their ids.
    ///
    /// # Errors
    /// `invalid-options` for values that no adapter has, for a target that no module has, and where there
    /// is an adapter already.
    pub fn adapted(&self, lora: &LoraConfig) -> Result<Self> {
        lora.validate()?;
        if !self.low_rank.is_empty() {
            return Err(Error::options(
                "this model already has an adapter; create the second one on its base",
            ));
        }
        let mut adapted = self.clone();
        let mut used = vec![false; lora.targets.len()];
        for target in self.linear_weights() {
            let Weight { params, columns, .. } = &self.weights[target];
            let mut row0 = 0;
            for param in params {
                let (module, rows) = (module(param), param.rows(*columns));
                let mut named = false;
                for (used, name) in used.iter_mut().zip(&lora.targets) {
                    let names = LoraConfig::names(name, module);
                    *used |= names;
                    named |= names;
                }
                if named {
                    adapted.add_low_rank(lora, param, target, [row0, rows, *columns]);
                }
                row0 += rows;
            }
        }
        match used.iter().position(|used| !used) {
            Some(unused) => Err(self.no_such_target(&lora.targets[unused])),
            None => Ok(adapted),
        }
    }

    /// Whether a weight is an adapter's.
    pub fn is_low_rank(&self, weight: WeightId) -> bool {
        self.low_rank.first().is_some_and(|first| weight >= first.a)
    }

    /// Whether a weight is a matrix that a layer multiplies by, or an adapter's.
    pub fn is_of_layer(&self, weight: WeightId) -> bool {
        self.is_low_rank(weight) || self.linear_weights().any(|id| id == weight)
    }

    /// Matrices of the layers.
    pub(super) fn linear_weights(&self) -> impl Iterator<Item = WeightId> {
        self.layers.iter().flat_map(Layer::matrices)
    }

    fn add_low_rank(
        &mut self,
        lora: &LoraConfig,
        param: &Param,
        target: WeightId,
        [row0, rows, columns]: [usize; 3],
    ) {
        let module = module(param);
        // B gives the module's rows, in the order in which the checkpoint has them.
        let of_b = param.stored.by_rows();
        // As PEFT draws it: uniform, of the width of a linear layer's own initialisation.
        let a = Init::Uniform(1.0 / libm::sqrt(columns as f64));
        let mut add = |name: &str, [rows, columns]: [usize; 2], stored, init| {
            let name = format!("base_model.model.{module}.{name}.weight");
            let shape = vec![rows, columns];
            let params = vec![Param { name, shape, stored, init }];
            self.weights.push(Weight { params, rows, columns, decay: true });
            self.weights.len() - 1
        };
        let a = add("lora_A", [lora.rank, columns], Stored::Rows, a);
        let b = add("lora_B", [rows, lora.rank], of_b, Init::Zeros);
        let (scale, dropout) = (lora.scale(), lora.dropout);
        self.low_rank.push(LowRank { target, row0, rows, a, b, scale, dropout });
    }

    fn no_such_target(&self, target: &str) -> Error {
        let params = self.linear_weights().flat_map(|weight| &self.weights[weight].params);
        let mut known = vec![];
        for name in params.filter_map(|param| module(param).rsplit('.').next()) {
            if !known.contains(&name) {
                known.push(name);
            }
        }
        Error::options(format!(
            "targets names {target:?}, and no linear module of a layer has that name; this model has {}",
            known.join(", ")
        ))
    }
}

/// The module that has a matrix.
fn module(param: &Param) -> &str {
    param.name.strip_suffix(".weight").unwrap_or(&param.name)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::ModelConfig;

    fn base() -> Architecture {
        let config = r#"{"vocab_size":96,"hidden_size":64,"intermediate_size":100,"num_hidden_layers":2,
            "num_attention_heads":4,"num_key_value_heads":2,"head_dim":16}"#;
        Architecture::of(&ModelConfig::from_json(config).unwrap())
    }

    fn lora(targets: &[&str]) -> LoraConfig {
        let targets = targets.iter().map(|&target| target.into()).collect();
        LoraConfig { rank: 3, alpha: 6.0, targets, ..LoraConfig::default() }
    }

    #[test]
    fn stacked_modules_are_adapted_apart() {
        let base = base();
        let adapted = base.adapted(&lora(&["v_proj", "1.mlp.up_proj"])).unwrap();
        assert_eq!(adapted.weights[..base.weights.len()], base.weights);
        let tensors: Vec<_> = adapted.tensors().split_off(base.tensors().len());
        let name =
            |module: &str, which| format!("base_model.model.model.layers.{module}.{which}.weight");
        let expected = [
            (name("0.self_attn.v_proj", "lora_A"), vec![3, 64]),
            (name("0.self_attn.v_proj", "lora_B"), vec![32, 3]),
            (name("1.self_attn.v_proj", "lora_A"), vec![3, 64]),
            (name("1.self_attn.v_proj", "lora_B"), vec![32, 3]),
            (name("1.mlp.up_proj", "lora_A"), vec![3, 64]),
            (name("1.mlp.up_proj", "lora_B"), vec![100, 3]),
        ];
        assert_eq!(tensors, expected);
        let places: Vec<_> = adapted.low_rank.iter().map(|l| (l.target, l.row0, l.rows)).collect();
        let matrices: Vec<_> = base.layers.iter().flat_map(Layer::matrices).collect();
        let [first, _, _, _, second, _, third, _] = matrices[..] else { panic!("{matrices:?}") };
        assert_eq!(places, [(first, 96, 32), (second, 96, 32), (third, 100, 100)]);
        assert!(adapted.low_rank.iter().all(|low| low.scale == 2.0));
        for id in 0..adapted.weights.len() {
            assert_eq!(adapted.is_low_rank(id), id >= base.weights.len());
        }
    }

    #[test]
    fn all_linear_is_every_matrix_of_the_layers() {
        let adapted = base().adapted(&lora(&["all-linear"])).unwrap();
        assert_eq!(adapted.low_rank.len(), 2 * 7);
    }

    #[test]
    fn a_target_that_no_module_has_is_refused() {
        for target in ["w_proj", "lm_head", "embed_tokens", "2.mlp.up_proj", "q_norm"] {
            let message = base().adapted(&lora(&["q_proj", target])).unwrap_err().message;
            assert!(
                message.contains(target) && message.contains("q_proj, k_proj, v_proj, o_proj"),
                "{message}"
            );
        }
        let adapted = base().adapted(&lora(&["q_proj"])).unwrap();
        assert!(adapted.adapted(&lora(&["q_proj"])).unwrap_err().message.contains("on its base"));
    }
}
