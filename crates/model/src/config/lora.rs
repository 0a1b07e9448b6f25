//! How an adapter is made: low-rank adaptation (Hu et al., "LoRA", arXiv:2106.09685), with PEFT's names of modules.

use crate::error::{Error, Result};
use serde::{Deserialize, Serialize};

/// Stands for every linear module of the layers, as in PEFT.
pub const ALL_LINEAR: &str = "all-linear";

/// An adapter's options.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields, default)]
pub struct LoraConfig {
    /// Rows of A and columns of B.
    pub rank: usize,
    /// The product is scaled by alpha / rank.
    pub alpha: f64,
    /// It is scaled by alpha / √rank instead (Kalajdzievski, "rsLoRA", arXiv:2312.03732).
    pub rs_lora: bool,
    /// The share of a product's inputs that a training step leaves out.
    pub dropout: f64,
    /// Modules by their name or the end of it, such as `q_proj` or `layers.0.mlp.down_proj`.
    pub targets: Vec<String>,
    /// The seed of A. B starts at zero.
    pub seed: u64,
}

impl Default for LoraConfig {
    fn default() -> Self {
        let targets = vec![ALL_LINEAR.into()];
        Self { rank: 8, alpha: 8.0, rs_lora: false, dropout: 0.0, targets, seed: 0 }
    }
}

impl LoraConfig {
    /// Checks every value.
    ///
    /// # Errors
    /// `invalid-options`, naming the value and what is allowed.
    pub fn validate(&self) -> Result<()> {
        match self.wrong() {
            Some((option, what)) => Err(Error::options(format!("{option} {what}"))),
            None => Ok(()),
        }
    }

    /// The first option that is not allowed, and what is wrong with it.
    pub(super) fn wrong(&self) -> Option<(&'static str, String)> {
        let Self { rank, alpha, dropout, .. } = *self;
        if !(1..=1 << 16).contains(&rank) {
            return Some(("rank", format!("is {rank}; it must be from 1 to 65536")));
        }
        if !(self.scale() as f32).is_normal() || alpha <= 0.0 {
            let what = format!(
                "is {alpha:?}; it must be positive, and the scale that it gives within the range of f32"
            );
            return Some(("alpha", what));
        }
        if !(0.0..1.0).contains(&dropout) {
            return Some(("dropout", format!("is {dropout}; it must be at least 0 and below 1")));
        }
        self.targets.is_empty().then(|| {
            let what = format!(
                "is empty; name the modules to adapt, such as \"q_proj\", or \"{ALL_LINEAR}\""
            );
            ("targets", what)
        })
    }

    /// The factor on the product of A and B.
    pub fn scale(&self) -> f64 {
        let rank = self.rank as f64;
        self.alpha / if self.rs_lora { libm::sqrt(rank) } else { rank }
    }

    /// Whether a target names this module.
    pub fn names(target: &str, module: &str) -> bool {
        let ends = |rest: &str| rest.is_empty() || rest.ends_with('.');
        target == ALL_LINEAR || module.strip_suffix(target).is_some_and(ends)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_no_adapter_is_refused() {
        let refused = |lora: LoraConfig| lora.validate().unwrap_err().message;
        let lora = LoraConfig::default;
        lora().validate().unwrap();
        assert!(refused(LoraConfig { rank: 0, ..lora() }).contains("rank is 0"));
        for alpha in [0.0, -1.0, f64::NAN, 1e300] {
            assert!(refused(LoraConfig { alpha, ..lora() }).contains("alpha is"));
        }
        let far = refused(LoraConfig { alpha: 1e300, ..lora() });
        assert!(far.contains("alpha is 1e300;"), "{far}");
        for dropout in [-0.1, 1.0, f64::NAN] {
            assert!(refused(LoraConfig { dropout, ..lora() }).contains("dropout is"));
        }
        assert!(refused(LoraConfig { targets: vec![], ..lora() }).contains("targets is empty"));
    }

    #[test]
    fn the_scale_follows_the_rank() {
        let lora = LoraConfig { rank: 16, alpha: 8.0, ..LoraConfig::default() };
        assert_eq!(lora.scale(), 0.5);
        assert_eq!(LoraConfig { rs_lora: true, ..lora }.scale(), 2.0);
    }

    #[test]
    fn a_target_is_a_module_or_the_end_of_its_name() {
        let module = "model.layers.11.self_attn.q_proj";
        for target in ["q_proj", "self_attn.q_proj", "11.self_attn.q_proj", module, ALL_LINEAR] {
            assert!(LoraConfig::names(target, module), "{target}");
        }
        for target in ["proj", "k_proj", "1.self_attn.q_proj", "q_proj.weight"] {
            assert!(!LoraConfig::names(target, module), "{target}");
        }
    }
}
