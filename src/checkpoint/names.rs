//! Names of tensors as files have them: with what programs put before them, and of what no model has.

use super::header::Entry;
use super::list;
use crate::error::{Error, Result};

/// The weight that gives logits, in the checkpoints of some models, and as transformers 5 names it there too.
pub(super) const HEAD: [&str; 2] = ["embed_out.weight", "lm_head.weight"];
/// What a model without its head lacks before its names.
const BASES: [&str; 3] = ["model.", "transformer.", "gpt_neox."];
/// What training programs, PEFT and models of images put before the names of a model, and what a base may have too
/// many.
const WRAPPERS: [&str; 7] = [
    "module.",
    "_orig_mod.",
    "base_model.model.",
    "language_model.",
    "model.",
    "transformer.",
    "gpt_neox.",
];

/// The name under which a file's tensor is expected: without what stands before it, with what it lacks, and of [`HEAD`]
/// the one that is expected. Another one stays, without what stands before it.
pub(super) fn whole(name: &str, expected: &dyn Fn(&str) -> bool) -> String {
    let mut rest = name;
    loop {
        if expected(rest) {
            return rest.to_owned();
        }
        if let Some(other) = HEAD.iter().find(|other| HEAD.contains(&rest) && expected(other)) {
            return (*other).to_owned();
        }
        let lacking =
            BASES.iter().map(|base| format!("{base}{rest}")).find(|whole| expected(whole));
        if let Some(whole) = lacking {
            return whole;
        }
        match WRAPPERS.iter().find_map(|wrapper| rest.strip_prefix(wrapper)) {
            Some(inner) => rest = inner,
            None => return rest.to_owned(),
        }
    }
}

/// Tensors that hold no weights of a text model: the rotary table and masks of old checkpoints, the copy of a tied
/// embedding (an untied head's weight is always expected), and what reads images or sounds beside a text model.
fn is_harmless(name: &str) -> bool {
    const BUFFERS: [&str; 5] = [
        "rotary_emb.inv_freq",
        ".attn.bias",
        ".attn.masked_bias",
        ".attention.bias",
        ".attention.masked_bias",
    ];
    const OTHERS: [&str; 5] =
        ["vision_tower.", "vision_model.", "visual.", "multi_modal_projector.", "audio_tower."];
    BUFFERS.iter().any(|buffer| name.ends_with(buffer))
        || OTHERS.iter().any(|other| name.starts_with(other))
        || HEAD.contains(&name)
}

/// What unexpected tensors are, by a part of a name, and the cure.
const CURES: [(&[&str], &str); 5] = [
    (
        &["lora_", "modules_to_save", ".base_layer."],
        "they are of PEFT: load the model that is under the adapter, and the adapter with Adapter.load, or merge \
         both in PEFT with merge_and_unload",
    ),
    (
        &["v_head.", "value_head.", "score.", "classifier."],
        "they are a head that gives no logits: save the model without it, in transformers with \
         AutoModelForCausalLM.from_pretrained(folder).save_pretrained(other)",
    ),
    (
        &["qweight", "qzeros", "absmax", "quant_map", "weight_scale", "g_idx", ".scales"],
        "they are of quantised weights, and F32, F16 and BF16 are read: take the checkpoint that is not quantised",
    ),
    (
        &["mtp.", ".mtp_", "mtp_"],
        "they predict further tokens, which tinyloom does not: save the model without them, in transformers with \
         AutoModelForCausalLM.from_pretrained(folder).save_pretrained(other)",
    ),
    (&[".bias"], "models of the config's model_type have no such biases"),
];

/// A tensor that nothing will read means that file and config disagree about the model.
pub(super) fn refuse_unexpected(
    file: &str,
    entries: &[(String, Entry)],
    expected: &dyn Fn(&str) -> bool,
) -> Result<()> {
    let unexpected: Vec<&str> = entries
        .iter()
        .map(|(name, _)| (name.as_str(), whole(name, expected)))
        .filter(|(_, whole)| !expected(whole) && !is_harmless(whole))
        .map(|(name, _)| name)
        .collect();
    if unexpected.is_empty() {
        return Ok(());
    }
    let named =
        |parts: &[&str]| unexpected.iter().any(|name| parts.iter().any(|part| name.contains(part)));
    let known = CURES.iter().find(|(parts, _)| named(parts)).map(|(_, cure)| *cure);
    // Layers beyond the config's have the names of others.
    let further = unexpected.iter().any(|name| expected(&whole(&first_layer(name), expected)));
    let why = match known {
        _ if further => {
            "the config has fewer layers: take the config.json of this checkpoint, or leave these tensors out"
        }
        Some(cure) => cure,
        None => "the config has no such tensors: take the config.json of this checkpoint",
    };
    Err(Error::checkpoint(format!(
        "{file} has unexpected tensors, and {why}: {}",
        list(&unexpected)
    )))
}

/// The name that the first layer has for a layer's tensor.
fn first_layer(name: &str) -> String {
    let number = |part: &&str| !part.is_empty() && part.bytes().all(|byte| byte.is_ascii_digit());
    name.split('.').map(|part| if number(&part) { "0" } else { part }).collect::<Vec<_>>().join(".")
}
