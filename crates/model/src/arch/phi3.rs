//! Phi-3 (Abdin et al., arXiv:2404.14219) and Phi-4-mini (arXiv:2503.01743): Llama whose checkpoints have one matrix for
//! queries, keys and values and one for gate and up, with RoPE on the beginning of each head.

use super::Family;
use super::gguf::{Gguf, SILU, UNCAPPED};
use super::llama::{Differences, LLAMA, decoder};
use crate::config::slots::*;
use crate::config::{Missing, NO_BIASES};

pub(super) static PHI3: Family = Family {
    names: ["phi3", "Phi3ForCausalLM"],
    like: Some(&LLAMA),
    fields: &[
        HIDDEN_SIZE.or(Missing::Size(3072)),
        POSITIONS.or(Missing::Size(4096)),
        ORIGINAL_POSITIONS.or(Missing::Size(4096)),
        ROTARY_SHARE.or(Missing::Real(1.0)),
        INTERMEDIATE_SIZE.or(Missing::Size(8192)),
        VOCAB_SIZE.or(Missing::Size(32_064)),
        NORM_EPS.or(Missing::Real(1e-5)),
        WINDOW.or_nothing().with_nulls(),
        RESIDUAL_DROPOUT.or(Missing::Real(0.0)),
    ],
    refused: &[
        NO_BIASES[0],
        NO_BIASES[1],
        ("embd_pdrop", |value| value.as_f64() == Some(0.0), "0: transformers has no use for it"),
    ],
    gguf: Some(Gguf {
        architecture: "phi3",
        modules: &[&[
            ("embed_tokens", "token_embd"),
            ("norm", "output_norm"),
            ("lm_head", "output"),
            ("input_layernorm", "attn_norm"),
            ("self_attn.qkv_proj", "attn_qkv"),
            ("self_attn.o_proj", "attn_output"),
            ("post_attention_layernorm", "ffn_norm"),
            ("mlp.gate_up_proj", "ffn_up"),
            ("mlp.down_proj", "ffn_down"),
        ]],
        changes: &[],
        expected: &[SILU, UNCAPPED],
    }),
    describe: |model| {
        decoder(model, Differences { joined: true, padding: Some(32_000), ..Differences::NONE })
    },
};

#[cfg(test)]
mod tests {
    use crate::arch::Architecture;
    use crate::config::ModelConfig;

    /// The config of Phi-3-mini-4k-instruct, as transformers 4 wrote it.
    #[test]
    fn products_are_joined_in_the_checkpoint() {
        let text = r#"{"_name_or_path":"Phi-3-mini-4k-instruct","architectures":["Phi3ForCausalLM"],
            "attention_dropout":0.0,"bos_token_id":1,"embd_pdrop":0.0,"eos_token_id":32000,
            "hidden_act":"silu","hidden_size":3072,"initializer_range":0.02,"intermediate_size":8192,
            "max_position_embeddings":4096,"model_type":"phi3","num_attention_heads":32,
            "num_hidden_layers":32,"num_key_value_heads":32,"original_max_position_embeddings":4096,
            "pad_token_id":32000,"resid_pdrop":0.0,"rms_norm_eps":1e-05,"rope_scaling":null,
            "rope_theta":10000.0,"sliding_window":2047,"tie_word_embeddings":false,
            "torch_dtype":"bfloat16","transformers_version":"4.40.2","use_cache":true,"vocab_size":32064,
            "attention_bias":false}"#;
        let config = ModelConfig::from_json(text).unwrap();
        let of = Architecture::of(&config);
        assert_eq!(of.parameter_count(), 3_821_079_552);
        assert_eq!(of.window(), Some(2047));
        assert!(of.tensors().iter().any(|(name, shape)| {
            name == "model.layers.31.self_attn.qkv_proj.weight" && *shape == [9216, 3072]
        }));
        assert_eq!(ModelConfig::from_json(&config.to_json()).unwrap(), config);
        for (more, named) in [
            (
                r#","rope_scaling":{"type":"longrope","short_factor":[1]}"#,
                "rope_scaling.long_factor",
            ),
            (
                r#","rope_scaling":{"type":"su","short_factor":[1],"long_factor":[2]}"#,
                "short_factor has 1 numbers; it must have one for each of the 48 pairs",
            ),
            (r#","embd_pdrop":0.1"#, "embd_pdrop is 0.1"),
            (r#","partial_rotary_factor":2"#, "partial_rotary_factor is 2"),
        ] {
            let text = format!(r#"{{"model_type":"phi3"{more}}}"#);
            let error = ModelConfig::from_json(&text).unwrap_err();
            assert!(error.message.contains(named), "{more}: {error}");
        }
    }
}
