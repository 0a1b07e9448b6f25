//! OLMo 2 (OLMo et al., arXiv:2501.00656): Llama with norms after its blocks instead of before them, and a norm of all
//! heads' queries together, and of their keys.

use super::Family;
use super::gguf::{DECODER, Gguf, HEAD_NORMS, SILU, UNCAPPED};
use super::llama::{Differences, HeadsNormed, LLAMA, Place, decoder};
use crate::config::slots::*;
use crate::config::{Field, Fields, Kind, Missing, ModelConfig, NO_BIASES, Slot, refuse};
use crate::error::Result;
use serde_json::json;

pub(super) static OLMO2: Family = Family {
    names: ["olmo2", "Olmo2ForCausalLM"],
    like: Some(&LLAMA),
    fields: &[
        EACH_HEADS_KEYS.or_nothing(),
        VOCAB_SIZE.or(Missing::Size(50_304)),
        NORM_EPS.or(Missing::Real(1e-5)),
    ],
    refused: &[NO_BIASES[1]],
    gguf: Some(Gguf {
        architecture: "olmo2",
        modules: &[
            &[
                ("post_attention_layernorm", "post_attention_norm"),
                ("post_feedforward_layernorm", "post_ffw_norm"),
            ],
            DECODER,
            HEAD_NORMS,
        ],
        changes: &[],
        expected: &[SILU, UNCAPPED],
    }),
    describe: |model| {
        let (norms_at, head_norms) = (Place::Behind, HeadsNormed::Together);
        decoder(model, Differences { norms_at, head_norms, padding: Some(1), ..Differences::NONE })
    },
};

/// The kernel that norms queries and keys has rows of one length for both.
static EACH_HEADS_KEYS: Slot = Slot::number(
    KEY_VALUE_HEADS.name,
    Kind::Custom {
        read: read_key_value_heads,
        write: |field, config| vec![(field.name, json!(config.num_key_value_heads))],
    },
    KEY_VALUE_HEADS.about,
)
.also(KEY_VALUE_HEADS.aliases);

fn read_key_value_heads(
    field: &Field,
    fields: &mut Fields<'_>,
    config: &mut ModelConfig,
) -> Result<()> {
    Field { slot: &KEY_VALUE_HEADS, ..*field }.read(fields, config)?;
    let (heads, found) = (config.num_attention_heads, config.num_key_value_heads);
    if found == heads {
        return Ok(());
    }
    let allowed = format!("num_attention_heads, {heads}: tinyloom norms as many keys as queries");
    Err(refuse(field.name, &json!(found), &allowed))
}

#[cfg(test)]
mod tests {
    use crate::arch::Architecture;
    use crate::config::ModelConfig;

    /// The config of OLMo-2-0425-1B, as transformers 4 wrote it.
    #[test]
    fn norms_are_behind_the_blocks_and_over_all_heads() {
        let text = r#"{"architectures":["Olmo2ForCausalLM"],"attention_bias":false,"attention_dropout":0.0,
            "eos_token_id":100257,"hidden_act":"silu","hidden_size":2048,"initializer_range":0.02,
            "intermediate_size":8192,"max_position_embeddings":4096,"model_type":"olmo2",
            "num_attention_heads":16,"num_hidden_layers":16,"num_key_value_heads":16,"pad_token_id":100277,
            "rms_norm_eps":1e-06,"rope_scaling":null,"rope_theta":500000,"tie_word_embeddings":false,
            "torch_dtype":"float32","transformers_version":"4.47.0","use_cache":true,"vocab_size":100352}"#;
        let config = ModelConfig::from_json(text).unwrap();
        let of = Architecture::of(&config);
        assert_eq!(of.parameter_count(), 1_484_916_736);
        let layer = &of.layers[0];
        let (attention, mlp) = (layer.attention.as_ref().unwrap(), layer.mlp.as_ref().unwrap());
        assert_eq!([attention.norms.before, mlp.norms.before], [None, None]);
        assert!(attention.norms.behind.is_some() && mlp.norms.behind.is_some());
        assert_eq!(of.weights[attention.head_norms.unwrap().weight].columns, 2048);
        assert_eq!(ModelConfig::from_json(&config.to_json()).unwrap(), config);
        let text = r#"{"model_type":"olmo2","num_key_value_heads":8}"#;
        let error = ModelConfig::from_json(text).unwrap_err();
        assert!(error.message.contains("num_key_value_heads is 8"), "{error}");
    }
}
