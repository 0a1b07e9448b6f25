//! Fields that would change the model and that tinyloom has no kernel for.

use super::fields::{Fields, Neutral};
use super::slots::WINDOW;
use crate::arch::{FAMILIES, Family};
use crate::error::Result;
use serde_json::Value;

/// A field, which of its values ask for nothing beside `null`, and what is allowed, in words.
pub type Refusal = (&'static str, Neutral, &'static str);

pub const OFF: Neutral = |value| *value == Value::Bool(false);
/// `null` alone.
pub const NOTHING: Neutral = |_| false;
const ON: Neutral = |value| *value == Value::Bool(true);
pub(super) const ONE: Neutral = |value| value.as_f64() == Some(1.0);
/// One number per layer; 1: the layer has RoPE.
const ALL_ONES: Neutral = |value| value.as_array().is_some_and(|list| list.iter().all(ONE));

pub(super) const WHOLE_HEADS: &str = "1: this family rotates whole heads";
const HEAD_NORMS: &str = "false: families have norms of queries and keys by no field";

/// Refusals of families that are like Llama and have no biases by these fields.
pub const NO_BIASES: [Refusal; 2] = [
    ("attention_bias", OFF, "false: tinyloom has no biases by this field in this family"),
    ("mlp_bias", OFF, "false: tinyloom has no biases by this field in this family"),
];

/// What no family reads, or few: in others it is refused.
const REFUSED: [Refusal; 20] = [
    ("attention_bias", OFF, NO_BIASES[0].2),
    ("mlp_bias", OFF, NO_BIASES[1].2),
    ("pretraining_tp", ONE, "1: tinyloom has no tensor-parallel slicing"),
    ("partial_rotary_factor", ONE, WHOLE_HEADS),
    ("quantization_config", NOTHING, "absent: tinyloom reads F32, F16 and BF16 weights"),
    ("use_qk_norm", OFF, HEAD_NORMS),
    ("qk_norm", OFF, HEAD_NORMS),
    ("qk_layernorm", OFF, HEAD_NORMS),
    ("no_rope_layers", ALL_ONES, "absent or all 1: every layer of this family has RoPE"),
    ("rope_interleaved", OFF, "false: tinyloom rotates halves of a head, not neighbours"),
    ("use_bidirectional_attention", OFF, "false: tinyloom's attention is causal"),
    ("final_logit_softcapping", NOTHING, "null: this family has no soft cap of logits"),
    ("embedding_multiplier", ONE, "1: only granite scales embeddings by this field"),
    ("residual_multiplier", ONE, "1: only granite scales what blocks add"),
    ("attention_multiplier", NOTHING, "null: only granite scales scores by this field"),
    ("logits_scaling", ONE, "1: only granite scales logits"),
    ("scale_attn_weights", ON, "true: tinyloom scales scores by 1/√head_dim"),
    (
        "scale_attn_by_inverse_layer_idx",
        OFF,
        "false: tinyloom scales the scores of all layers alike",
    ),
    ("reorder_and_upcast_attn", OFF, "false: tinyloom's attention is f32 as it is"),
    ("add_cross_attention", OFF, "false: tinyloom has no encoders to attend to"),
];

/// Refuses a field that asks for what tinyloom lacks, by name. The others stay: `save` gives them back.
pub(super) fn refuse_unsupported(fields: &Fields<'_>, family: &Family) -> Result<()> {
    let own = family.fields();
    let reads = |name: &str| own.iter().any(|field| [field.name, field.slot.name].contains(&name));
    REFUSED
        .iter()
        .filter(|(name, ..)| !reads(name))
        .chain(family.refused)
        .try_for_each(|&(name, neutral, allowed)| fields.require_neutral(name, neutral, allowed))
}

/// Refuses what transformers' model of the family ignores: a program that gives it means something by it.
pub(super) fn refuse_ignored(fields: &Fields<'_>, family: &Family) -> Result<()> {
    let switch = "use_sliding_window";
    let has = family.has(&WINDOW) || family.fields().iter().any(|field| field.name == switch);
    if has || fields.peek(switch)? == false {
        return Ok(());
    }
    let windowed = |of: &&&Family| of.fields().iter().any(|own| own.name == WINDOW.name);
    let names: Vec<_> = FAMILIES.iter().filter(windowed).map(|of| of.names[0]).collect();
    let allowed = format!("absent, or model_type one of {}", names.join(", "));
    fields.require_neutral(WINDOW.name, NOTHING, &allowed)
}
