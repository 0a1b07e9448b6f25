//! What training leaves out at random (Srivastava et al., "Dropout", JMLR 2014), by each family's names.

/// Shares that a training step leaves out.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct DropoutRates {
    /// Share of the elements of embeddings.
    pub embedding: f64,
    /// Share of the keys that each query attends to.
    pub attention: f64,
    /// Share of the elements of what attention and the feed-forward block add.
    pub residual: f64,
}

impl DropoutRates {
    pub const fn all(rate: f64) -> Self {
        Self { embedding: rate, attention: rate, residual: rate }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::ModelConfig;

    fn rates(text: &str) -> DropoutRates {
        ModelConfig::from_json(text).unwrap().dropout
    }

    #[test]
    fn rates_are_read_by_the_names_of_each_family() {
        let (embedding, attention, residual) = (0.1, 0.2, 0.3);
        let all = DropoutRates { embedding, attention, residual };
        for text in [
            r#"{"model_type":"gpt2","embd_pdrop":0.1,"attn_pdrop":0.2,"resid_pdrop":0.3}"#,
            r#"{"model_type":"gpt_neo","embed_dropout":0.1,"attention_dropout":0.2,"resid_dropout":0.3}"#,
        ] {
            assert_eq!(rates(text), all);
            let written = ModelConfig::from_json(text).unwrap().to_json();
            assert_eq!(rates(&written), all, "{written}");
        }
        let text = r#"{"model_type":"gpt_neox","hidden_dropout":0.3,"attention_dropout":0.2}"#;
        assert_eq!(rates(text), DropoutRates { embedding: 0.3, ..all });
        assert_eq!(rates(&ModelConfig::from_json(text).unwrap().to_json()).embedding, 0.3);
        let text = r#"{"attention_dropout":0.2}"#;
        assert_eq!(rates(text), DropoutRates { attention, ..DropoutRates::default() });
    }

    #[test]
    fn a_config_without_rates_has_those_of_transformers() {
        assert_eq!(rates(r#"{"model_type":"gpt2"}"#), DropoutRates::all(0.1));
        for family in ["llama", "gpt_neo", "gpt_neox", "gemma2"] {
            let text = format!(r#"{{"model_type":"{family}"}}"#);
            assert_eq!(rates(&text), DropoutRates::default(), "{family}");
        }
    }

    #[test]
    fn a_rate_that_leaves_nothing_is_refused_by_name() {
        for (family, name) in [("gpt2", "attn_pdrop"), ("llama", "attention_dropout")] {
            for rate in ["1", "-0.1", "2e300"] {
                let text = format!(r#"{{"model_type":"{family}","{name}":{rate}}}"#);
                let message = ModelConfig::from_json(&text).unwrap_err().message;
                assert!(message.contains(name) && message.contains("below 1"), "{message}");
            }
        }
    }
}
