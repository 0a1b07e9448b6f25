//! Granite 3 (Granite Team, "Granite 3.0 Language Models", 2024): Llama with factors on embeddings, scores, what each
//! block adds, and logits (Yang et al., arXiv:2203.03466).

use super::describe::Describe;
use super::gguf::{DECODER, Gguf, SILU, UNCAPPED};
use super::llama::{Differences, LLAMA, PAIRS, decoder};
use super::{Architecture, Family};
use crate::config::{Missing, Slot};

pub(super) static GRANITE: Family = Family {
    names: ["granite", "GraniteForCausalLM"],
    like: Some(&LLAMA),
    fields: &[
        OF_EMBEDDINGS.or(Missing::Real(1.0)),
        OF_LOGITS.or(Missing::Real(1.0)),
        OF_BLOCKS.or(Missing::Real(1.0)),
        OF_SCORES.or(Missing::Real(1.0)),
    ],
    refused: &[],
    gguf: Some(Gguf {
        architecture: "granite",
        modules: &[DECODER],
        changes: PAIRS,
        expected: &[SILU, UNCAPPED],
    }),
    describe,
};

static OF_EMBEDDINGS: Slot =
    Slot::own_real("embedding_multiplier", "Factor on the embeddings of Granite. Default 1.");
static OF_LOGITS: Slot =
    Slot::own_real("logits_scaling", "What the logits of Granite are divided by. Default 1.");
static OF_BLOCKS: Slot =
    Slot::own_real("residual_multiplier", "Factor on what each block of Granite adds. Default 1.");
static OF_SCORES: Slot = Slot::own_real(
    "attention_multiplier",
    "Granite multiplies attention scores by it, in place of 1/√`head_dim`. Default 1.",
);

/// No kernel scales what a block adds. With the residual stream divided by its factor r, blocks add to it what they
/// are, and norms of it are those of the stream itself with an epsilon of r² of theirs.
fn describe(mut model: Describe) -> Architecture {
    let [embeddings, logits, blocks, scores] = [&OF_EMBEDDINGS, &OF_LOGITS, &OF_BLOCKS, &OF_SCORES]
        .map(|slot| model.config.own_real(slot));
    model.epsilon /= blocks * blocks;
    let mut of = decoder(model, Differences::NONE);
    let factor = |by: f64| (by != 1.0).then_some(by);
    of.embedding_scale = factor(embeddings / blocks);
    of.stream_scale = factor(blocks);
    of.head_scale = factor(1.0 / logits);
    for block in of.layers.iter_mut().filter_map(|layer| layer.attention.as_mut()) {
        block.attention.scale = Some(scores);
    }
    of
}

#[cfg(test)]
mod tests {
    use crate::arch::Architecture;
    use crate::config::ModelConfig;

    /// The config of granite-3.3-2b-base, as transformers wrote it.
    #[test]
    fn the_released_model_has_its_factors() {
        let text = r#"{"architectures":["GraniteForCausalLM"],"attention_bias":false,"attention_dropout":0.0,
            "attention_multiplier":0.015625,"bos_token_id":0,"embedding_multiplier":12.0,"eos_token_id":0,
            "hidden_act":"silu","hidden_size":2048,"initializer_range":0.02,"intermediate_size":8192,
            "logits_scaling":8.0,"max_position_embeddings":131072,"mlp_bias":false,"model_type":"granite",
            "num_attention_heads":32,"num_hidden_layers":40,"num_key_value_heads":8,"pad_token_id":0,
            "residual_multiplier":0.22,"rms_norm_eps":1e-05,"rope_scaling":null,"rope_theta":10000000.0,
            "tie_word_embeddings":true,"torch_dtype":"bfloat16","transformers_version":"4.49.0",
            "use_cache":true,"vocab_size":49152}"#;
        let config = ModelConfig::from_json(text).unwrap();
        let of = Architecture::of(&config);
        assert_eq!(of.parameter_count(), 2_533_525_504);
        assert_eq!([of.embedding_scale, of.head_scale], [Some(12.0 / 0.22), Some(0.125)]);
        assert_eq!(of.layers[0].heads().unwrap().scale, Some(0.015_625));
        let saved = config.to_json();
        assert!(saved.contains(r#""residual_multiplier": 0.22"#), "{saved}");
        assert_eq!(ModelConfig::from_json(&saved).unwrap(), config);
        for (more, named) in [
            (r#","residual_multiplier":0"#, "residual_multiplier is 0.0"),
            (r#","logits_scaling":-1"#, "logits_scaling is -1.0"),
            (r#","attention_multiplier":"a""#, "attention_multiplier is \"a\""),
            (r#","embedding_multipliers":2"#, "embedding_multipliers"),
        ] {
            let text = format!(r#"{{"model_type":"granite"{more}}}"#);
            let error = ModelConfig::from_json(&text).unwrap_err();
            assert!(error.message.contains(named), "{more}: {error}");
        }
    }
}
