//! Names of tensors as files have them: with what programs put before them, and of what no model has.

use super::header::Entry;
use super::list;
use crate::error::{Error, Result};

/// The weight that gives logits, in the checkpoints of some models, and as transformers 5 names it there too.
pub(super) const HEAD: [&str; 2] = ["embed_out.weight", "lm_head.weight"];
/// What training programs, PEFT and models of images put before the names of a model.
const WRAPPERS: [&str; 4] = ["module.", "_orig_mod.", "base_model.model.", "language_model."];

/// The names that are expected.
pub(super) struct Names<'a> {
    pub expected: &'a dyn Fn(&str) -> bool,
    /// What they begin with, such as `model.`: a model without its head lacks it, and some files have it twice.
    pub bases: &'a [String],
}

/// What names begin with.
pub(super) fn bases<'a>(names: impl Iterator<Item = &'a String>) -> Vec<String> {
    let mut bases: Vec<_> =
        names.filter_map(|name| Some(format!("{}.", name.split_once('.')?.0))).collect();
    bases.dedup();
    bases
}

impl Names<'_> {
    /// The name under which a file's tensor is expected: without what stands before it, with what it lacks, and of
    /// [`HEAD`] the one that is expected. Another one stays, without what stands before it.
    pub fn whole(&self, name: &str) -> String {
        let mut rest = name;
        loop {
            if (self.expected)(rest) {
                return rest.to_owned();
            }
            let head = |other: &&&str| HEAD.contains(&rest) && (self.expected)(other);
            if let Some(other) = HEAD.iter().find(head) {
                return (*other).to_owned();
            }
            let mut lacking = self.bases.iter().map(|base| format!("{base}{rest}"));
            if let Some(whole) = lacking.find(|whole| (self.expected)(whole)) {
                return whole;
            }
            let wrapper = |wrapper: &&str| rest.starts_with(wrapper);
            let before =
                WRAPPERS.into_iter().chain(self.bases.iter().map(String::as_str)).find(wrapper);
            match before {
                Some(before) => rest = &rest[before.len()..],
                None => return rest.to_owned(),
            }
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
    names: &Names<'_>,
) -> Result<()> {
    let unexpected: Vec<&str> = entries
        .iter()
        .map(|(name, _)| (name.as_str(), names.whole(name)))
        .filter(|(_, whole)| !(names.expected)(whole) && !is_harmless(whole))
        .map(|(name, _)| name)
        .collect();
    if unexpected.is_empty() {
        return Ok(());
    }
    let named =
        |parts: &[&str]| unexpected.iter().any(|name| parts.iter().any(|part| name.contains(part)));
    let known = CURES.iter().find(|(parts, _)| named(parts)).map(|(_, cure)| *cure);
    // Layers beyond the config's have the names of others.
    let further = unexpected.iter().any(|name| (names.expected)(&names.whole(&first_layer(name))));
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
