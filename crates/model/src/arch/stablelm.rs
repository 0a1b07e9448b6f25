//! StableLM 2 (Bellagente et al., arXiv:2402.17834): Llama with layer norms, biases of queries, keys and values by a
//! flag, and RoPE on the beginning of each head.

use super::gguf::{DECODER, Gguf, SILU, UNCAPPED};
use super::llama::{Differences, decoder};
use super::{Family, NormKind};
use crate::config::slots::*;
use crate::config::{Missing, NO_BIASES, OFF, Slot};

pub(super) static STABLELM: Family = Family {
    names: ["stablelm", "StableLmForCausalLM"],
    like: None,
    fields: &[
        HIDDEN_SIZE.or(Missing::Size(2560)),
        HEADS.or(Missing::Size(32)),
        LAYERS.or(Missing::Size(32)),
        POSITIONS.or(Missing::Size(4096)),
        KEY_VALUE_HEADS.or(Missing::Size(32)),
        ROPE.or(Missing::Real(1e4)),
        ROTARY_SHARE.or(Missing::Real(0.25)),
        ROPE_PARAMETERS.or_nothing(),
        ROPE_SCALING.or_nothing(),
        INTERMEDIATE_SIZE.or(Missing::Size(6912)),
        VOCAB_SIZE.or(Missing::Size(50_304)),
        NORM_EPS.or(Missing::Real(1e-5)).named("layer_norm_eps"),
        TIED.or(Missing::Flag(false)),
        HIDDEN_ACT.or(Missing::Activation("silu")),
        INITIALIZER_RANGE.or(Missing::Real(0.02)),
        SOFT_CAP.or_nothing(),
        BIASED.or(Missing::Flag(false)),
        ATTENTION_DROPOUT.or(Missing::Real(0.0)),
    ],
    refused: &[
        NO_BIASES[0],
        NO_BIASES[1],
        ("use_parallel_residual", OFF, "false: tinyloom has no blocks side by side in this family"),
        ("hidden_dropout", |value| value.as_f64() == Some(0.0), "0: it is of one block alone"),
    ],
    gguf: Some(Gguf {
        architecture: "stablelm",
        modules: &[DECODER],
        changes: &[],
        expected: &[SILU, UNCAPPED],
    }),
    describe: |model| {
        let qkv_bias = model.config.own_flag(&BIASED);
        decoder(model, Differences { norms: NormKind::Layer, qkv_bias, ..Differences::NONE })
    },
};

static BIASED: Slot = Slot::own_flag(
    "use_qkv_bias",
    "Products that give queries, keys and values of StableLM have biases. Default false.",
);

#[cfg(test)]
mod tests {
    use crate::arch::Architecture;
    use crate::config::ModelConfig;

    /// The config of stablelm-2-1_6b, as transformers 4 wrote it.
    #[test]
    fn a_quarter_of_each_head_turns() {
        let text = r#"{"architectures":["StableLmForCausalLM"],"bos_token_id":100257,"eos_token_id":100257,
            "hidden_act":"silu","hidden_size":2048,"initializer_range":0.02,"intermediate_size":5632,
            "layer_norm_eps":1e-05,"max_position_embeddings":4096,"model_type":"stablelm","use_qkv_bias":true,
            "num_attention_heads":32,"num_hidden_layers":24,"num_key_value_heads":32,
            "partial_rotary_factor":0.25,"rope_theta":10000,"tie_word_embeddings":false,
            "torch_dtype":"float16","transformers_version":"4.38.0","use_cache":true,"vocab_size":100352}"#;
        let config = ModelConfig::from_json(text).unwrap();
        let of = Architecture::of(&config);
        assert_eq!(of.parameter_count(), 1_644_515_328);
        assert_eq!(of.ropes[0].head_dim, 16);
        assert!(of.layers[0].attention.as_ref().unwrap().qkv.bias.is_some());
        assert_eq!(ModelConfig::from_json(&config.to_json()).unwrap(), config);
        for (more, named) in [
            (r#","use_parallel_residual":true"#, "use_parallel_residual is true"),
            (r#","qk_layernorm":true"#, "qk_layernorm is true"),
            (r#","hidden_dropout":0.1"#, "hidden_dropout is 0.1"),
            (r#","partial_rotary_factor":0.01"#, "partial_rotary_factor is 0.01"),
        ] {
            let text = format!(r#"{{"model_type":"stablelm"{more}}}"#);
            let error = ModelConfig::from_json(&text).unwrap_err();
            assert!(error.message.contains(named), "{more}: {error}");
        }
    }
}
