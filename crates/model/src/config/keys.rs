//! Field names that are almost, but not quite, those of `config.json`.
//!
//! A config carries fields that tinyloom does not read, and they have to survive; but one that was
//! meant to shape the model must not be ignored. So a misspelt name is refused where the field it
//! stands for is missing: a config that has both was written by someone who knew.

use super::field::Slot;
use super::fields::Fields;
use super::layers::LAYERS_LIST;
use super::slots::SHARED;
use crate::arch::{FAMILIES, Family};
use crate::error::{Error, Result};
use std::collections::BTreeMap;

/// Refuses a field that stands for a missing one under another name, and says which.
pub(super) fn refuse_near_misses(fields: &Fields<'_>, family: &Family) -> Result<()> {
    let known = known(family);
    for name in fields.names() {
        if let Some(meant) = meant(name, &known, family).filter(|meant| !fields.has(meant)) {
            return Err(Error::config(format!(
                "config field {name} is unknown and looks like a misspelt {meant}: rename it, or \
                 remove it"
            )));
        }
    }
    Ok(())
}

/// Refuses fields that neither this package nor transformers knows, of a config that was written by hand.
pub(super) fn refuse_unknown(unread: &BTreeMap<String, String>, family: &Family) -> Result<()> {
    // Published configs have fields of other published families. Layers that say what they are have none.
    let published = |family: &Family| !family.has(&LAYERS_LIST);
    let of_a_family = |name: &str| {
        let has = |of: &&Family| published(of) && of.fields().iter().any(|own| own.name == name);
        published(family) && FAMILIES.iter().copied().any(|of| has(&of))
    };
    let unknown = |name: &&String| {
        !WITHOUT_EFFECT.split_whitespace().any(|known| known == *name) && !of_a_family(name)
    };
    match unread.keys().find(unknown) {
        None => Ok(()),
        Some(name) => Err(Error::config(format!(
            "config field {name:.200} is unknown, and would change nothing: rename it, or remove it"
        ))),
    }
}

/// Fields of published configs that say nothing of what is computed here.
const WITHOUT_EFFECT: &str = "_attn_implementation _commit_hash _name_or_path _sliding_window_pattern \
    add_cross_attention architectures attention_bias auto_map bad_words_ids begin_suppress_tokens bos_token_id \
    cache_implementation chat_template chunk_size_feed_forward classifier_dropout cross_attention_hidden_size \
    decoder_start_token_id diversity_penalty do_sample dtype early_stopping encoder_no_repeat_ngram_size eos_token_id \
    exponential_decay_length_penalty finetuning_task forced_bos_token_id forced_eos_token_id gradient_checkpointing \
    id2label is_decoder is_encoder_decoder is_llama_config label2id length_penalty max_length max_sequence_length \
    max_window_layers min_length mlp_bias no_repeat_ngram_size no_rope_layers num_beam_groups num_beams num_labels \
    num_return_sequences original_max_position_embeddings output_attentions output_hidden_states output_scores \
    pad_token_id prefix pretraining_tp problem_type pruned_heads quantization_config remove_invalid_values \
    reorder_and_upcast_attn repetition_penalty return_dict return_dict_in_generate rope_interleaved \
    scale_attn_by_inverse_layer_idx scale_attn_weights sep_token_id sliding_window summary_activation \
    summary_first_dropout summary_proj_to_labels summary_type summary_use_proj suppress_tokens task_specific_params \
    temperature tf_legacy_loss tie_encoder_decoder tinyloom_note tokenizer_class top_k top_p torch_dtype torchscript \
    transformers.js_config transformers_version typical_p unsloth_fixed unsloth_version use_bfloat16 \
    use_bidirectional_attention use_cache use_mrope use_qk_norm use_sliding_window";

/// Where transformers notes the period of Gemma 3's layers for itself, beside `layer_types`.
const NOTED_PATTERN: &str = "_sliding_window_pattern";

/// The names of fields that shape a model of a family, in its own spelling.
fn known(family: &Family) -> Vec<&'static str> {
    let mut known: Vec<_> = SHARED.iter().map(|slot| spelled(family, slot)).collect();
    for field in family.fields() {
        if !known.contains(&field.name) {
            known.push(field.name);
        }
    }
    known
}

/// The family's own name of a field that others have too.
fn spelled(family: &Family, slot: &Slot) -> &'static str {
    family.find(slot).map_or(slot.name, |field| field.name)
}

/// The field that a name stands for, where it is not the field's own.
fn meant(name: &str, known: &[&'static str], family: &Family) -> Option<&'static str> {
    if name == NOTED_PATTERN || known.contains(&name) {
        return None;
    }
    // A family's own name takes the place of Llama's, which then is one of the others.
    let of = |slot: &&&Slot| {
        let Slot { name: usual, aliases, .. } = slot;
        aliases.contains(&name) || (*usual == name && !aliases.is_empty())
    };
    let alias = SHARED.iter().find(of).map(|slot| spelled(family, slot));
    alias.or_else(|| known.iter().copied().find(|field| near(name, field)))
}

/// Whether a name is a field's in another spelling (`hiddenSize`, `hidden-size`) or with a slip of
/// the finger: one letter, or two in a long name.
fn near(name: &str, field: &str) -> bool {
    let slips = if field.len() < 12 { 1 } else { 2 };
    // A hostile config may have one very long name, or very many.
    if name.len() > 2 * field.len()
        || letters(name).count().abs_diff(letters(field).count()) > slips
    {
        return false;
    }
    let squeeze = |text: &str| -> Vec<u8> { letters(text).collect() };
    distance(&squeeze(name), &squeeze(field)) <= slips
}

fn letters(text: &str) -> impl Iterator<Item = u8> {
    text.bytes().filter(u8::is_ascii_alphanumeric).map(|b| b.to_ascii_lowercase())
}

#[cfg(test)]
std::thread_local! {
    /// Pairs of letters that [`distance`] has compared on this thread.
    pub(super) static COMPARED: std::cell::Cell<usize> = const { std::cell::Cell::new(0) };
}

/// Letters to insert, delete or replace to make one text into the other (Levenshtein).
fn distance(a: &[u8], b: &[u8]) -> usize {
    #[cfg(test)]
    COMPARED.set(COMPARED.get() + a.len() * b.len());
    let mut row: Vec<usize> = (0..=b.len()).collect();
    for (i, x) in a.iter().enumerate() {
        let mut diagonal = std::mem::replace(&mut row[0], i + 1);
        for (j, y) in b.iter().enumerate() {
            let replaced = diagonal + usize::from(x != y);
            diagonal = row[j + 1];
            row[j + 1] = replaced.min(row[j] + 1).min(diagonal + 1);
        }
    }
    row[b.len()]
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::ModelConfig;

    fn meant_by(name: &str, family: &str) -> Option<&'static str> {
        let family = FAMILIES.iter().find(|known| known.names[0] == family).unwrap();
        meant(name, &known(family), family)
    }

    #[test]
    fn distances_are_those_of_levenshtein() {
        for (a, b, expected) in
            [("", "", 0), ("abc", "", 3), ("kitten", "sitting", 3), ("flaw", "lawn", 2)]
        {
            assert_eq!(distance(a.as_bytes(), b.as_bytes()), expected, "{a} {b}");
        }
    }

    #[test]
    fn misspelt_and_foreign_names_are_refused_with_the_right_one() {
        for (name, field) in [
            ("hidde_size", "hidden_size"),
            ("hiddenSize", "hidden_size"),
            ("hidden-size", "hidden_size"),
            ("HIDDEN_SIZE", "hidden_size"),
            ("num_hidden_layer", "num_hidden_layers"),
            ("num_attentio_head", "num_attention_heads"),
            ("maxPositionEmbeddings", "max_position_embeddings"),
            ("vocabsize", "vocab_size"),
            ("num_layers", "num_hidden_layers"),
            ("n_layer", "num_hidden_layers"),
            ("n_head", "num_attention_heads"),
            ("n_embd", "hidden_size"),
            ("d_model", "hidden_size"),
            ("n_kv_heads", "num_key_value_heads"),
            ("block_size", "max_position_embeddings"),
        ] {
            let text = format!(r#"{{"{name}":64}}"#);
            let message = ModelConfig::from_json(&text).unwrap_err().message;
            assert!(message.contains(name) && message.contains(field), "{message}");
            // With the field itself there, it is one more that tinyloom does not read.
            let text = format!(r#"{{"{name}":64,"{field}":64}}"#);
            if let Err(error) = ModelConfig::from_json(&text) {
                assert!(!error.message.contains("misspelt"), "{error}");
            }
        }
    }

    /// The distance takes the product of both lengths: a name that cannot be a slip has none.
    #[test]
    fn long_names_are_no_slips() {
        let long = "a".repeat(16 << 20);
        assert!(SHARED.iter().all(|slot| !near(&long, slot.name)));
        assert!(near("--hidden----size--", "hidden_size"));
        assert!(!near("hidden_size_of_text", "hidden_size"));
    }

    /// The fields that checkpoints on the hub carry besides the model's shape.
    #[test]
    fn the_other_fields_of_real_configs_are_left_alone() {
        for name in "_name_or_path add_cross_attention architectures attention_bias \
            attention_dropout bad_words_ids begin_suppress_tokens bos_token_id chat_template \
            chunk_size_feed_forward cross_attention_hidden_size decoder_start_token_id \
            diversity_penalty do_sample dtype early_stopping encoder_no_repeat_ngram_size \
            eos_token_id exponential_decay_length_penalty finetuning_task forced_bos_token_id \
            id2label is_decoder is_encoder_decoder is_llama_config label2id length_penalty \
            max_length max_sequence_length max_window_layers min_length mlp_bias model_type \
            no_repeat_ngram_size num_beam_groups num_beams num_labels num_return_sequences \
            original_max_position_embeddings output_attentions output_hidden_states \
            output_scores pad_token_id prefix pretraining_tp problem_type pruned_heads \
            remove_invalid_values repetition_penalty return_dict rope_interleaved \
            rope_parameters rope_scaling sep_token_id sliding_window suppress_tokens \
            task_specific_params temperature tf_legacy_loss tie_encoder_decoder \
            tokenizer_class top_k top_p torch_dtype torchscript transformers.js_config \
            transformers_version typical_p unsloth_fixed unsloth_version use_bfloat16 \
            use_cache use_sliding_window"
            .split_whitespace()
        {
            assert_eq!(meant_by(name, "llama"), None, "{name}");
        }
        for name in "activation_function attn_pdrop embd_pdrop gradient_checkpointing \
            initializer_range layer_norm_epsilon n_embd n_head n_inner n_layer n_positions \
            reorder_and_upcast_attn resid_pdrop scale_attn_by_inverse_layer_idx \
            scale_attn_weights summary_activation summary_first_dropout summary_proj_to_labels \
            summary_type summary_use_proj task_specific_params tie_word_embeddings vocab_size"
            .split_whitespace()
        {
            assert_eq!(meant_by(name, "gpt2"), None, "{name}");
        }
    }

    #[test]
    fn the_other_fields_of_neo_and_neox_are_left_alone() {
        for (family, names) in [
            (
                "gpt_neo",
                "activation_function architectures attention_dropout attention_layers attention_types \
                bos_token_id classifier_dropout embed_dropout eos_token_id gradient_checkpointing \
                hidden_size initializer_range intermediate_size layer_norm_epsilon \
                max_position_embeddings model_type num_heads num_layers resid_dropout \
                summary_activation summary_first_dropout summary_proj_to_labels summary_type \
                summary_use_proj tokenizer_class transformers_version use_cache vocab_size window_size",
            ),
            (
                "gpt_neox",
                "architectures attention_bias attention_dropout bos_token_id classifier_dropout \
                eos_token_id hidden_act hidden_dropout hidden_size initializer_range intermediate_size \
                layer_norm_eps max_position_embeddings model_type num_attention_heads num_hidden_layers \
                partial_rotary_factor rope_parameters rope_scaling rope_theta rotary_emb_base rotary_pct \
                tie_word_embeddings torch_dtype transformers_version use_cache use_parallel_residual \
                vocab_size",
            ),
        ] {
            for name in names.split_whitespace() {
                assert_eq!(meant_by(name, family), None, "{name}");
            }
        }
    }

    #[test]
    fn slips_in_fields_of_one_family_are_refused() {
        for (family, name, field) in [
            ("gpt_neo", "attention_type", "attention_types"),
            ("gpt_neo", "attentionLayers", "attention_layers"),
            ("gpt_neo", "windowSize", "window_size"),
            ("gpt_neo", "num_hidden_layers", "num_layers"),
            ("gpt_neo", "n_head", "num_heads"),
            ("gpt_neox", "useParallelResidual", "use_parallel_residual"),
            ("gpt_neox", "rotaryPct", "rotary_pct"),
            ("gpt_neox", "rotary_embed_base", "rotary_emb_base"),
            ("gpt_neox", "layer_norm_epsilon", "layer_norm_eps"),
        ] {
            let text = format!(r#"{{"model_type":"{family}","{name}":64}}"#);
            let message = ModelConfig::from_json(&text).unwrap_err().message;
            assert!(message.contains(name) && message.contains(field), "{message}");
        }
    }

    #[test]
    fn names_of_another_family_are_refused_with_the_own_one() {
        for (name, field) in [
            ("hidden_size", "n_embd"),
            ("n_embed", "n_embd"),
            ("n_layers", "n_layer"),
            ("num_hidden_layers", "n_layer"),
            ("max_position_embeddings", "n_positions"),
            ("layer_norm_eps", "layer_norm_epsilon"),
            ("hidden_act", "activation_function"),
        ] {
            let text = format!(r#"{{"model_type":"gpt2","{name}":64}}"#);
            let message = ModelConfig::from_json(&text).unwrap_err().message;
            assert!(message.contains(name) && message.contains(field), "{message}");
        }
    }
}
