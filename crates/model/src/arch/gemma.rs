//! Gemma (arXiv:2403.08295): Llama with norms by 1 + the weight, and embeddings times √hidden. Gemma 2
//! (arXiv:2408.00118): also with norms of what each block adds, windows in every other layer, and soft caps of scores
//! and logits, which the config resolves. Gemma 3 (arXiv:2503.19786): Gemma 2 with a norm of each head's queries and
//! keys instead of the caps, and other angles in layers with a window.

use super::gguf::{Change, DECODER, GELU, Gguf, HEAD_NORMS, UNCAPPED};
use super::llama::{Differences, HeadsNormed, LLAMA, Place, decoder};
use super::{Attention, Family, NormKind};
use crate::config::slots::*;
use crate::config::{Field, Fields, Kind, Missing, ModelConfig, NO_BIASES, Slot, refuse};
use crate::error::Result;

pub(super) static GEMMA: Family = Family {
    names: ["gemma", "GemmaForCausalLM"],
    like: Some(&LLAMA),
    fields: &[
        HIDDEN_SIZE.or(Missing::Size(3072)),
        HEADS.or(Missing::Size(16)),
        LAYERS.or(Missing::Size(28)),
        POSITIONS.or(Missing::Size(8192)),
        KEY_VALUE_HEADS.or(Missing::Size(16)),
        HEAD_DIM.or(Missing::Size(256)),
        INTERMEDIATE_SIZE.or(Missing::Size(24_576)),
        VOCAB_SIZE.or(Missing::Size(256_000)),
        TIED.or(Missing::Flag(true)),
        HIDDEN_ACT.or(Missing::Activation("gelu_pytorch_tanh")),
        OTHER_ACT.or_nothing(),
    ],
    refused: &NO_BIASES,
    gguf: Some(Gguf {
        architecture: "gemma",
        modules: &[DECODER],
        changes: PLUS_ONE,
        expected: &[TIED_HEAD, ("hidden_act", GELU), UNCAPPED],
    }),
    describe: |model| decoder(model, OF_GEMMA),
};

pub(super) static GEMMA2: Family = Family {
    names: ["gemma2", "Gemma2ForCausalLM"],
    like: Some(&GEMMA),
    fields: &[
        HIDDEN_SIZE.or(Missing::Size(2304)),
        HEADS.or(Missing::Size(8)),
        LAYERS.or(Missing::Size(26)),
        KEY_VALUE_HEADS.or(Missing::Size(4)),
        INTERMEDIATE_SIZE.or(Missing::Size(9216)),
        LOGIT_SOFT_CAP.or(Missing::Real(30.0)).with_nulls(),
        QUERY_SCALE.or(Missing::Size(256)),
        HIDDEN_ACT.or(Missing::Activation("gelu_pytorch_tanh")).named("hidden_activation"),
        OTHER_ACT.or_nothing().named("hidden_act"),
        LAYER_WINDOW.or(Missing::Size(4096)),
        LAYER_TYPES.or(Missing::Size(2)),
        SOFT_CAP.or(Missing::Real(50.0)).with_nulls(),
    ],
    refused: &NO_BIASES,
    gguf: Some(Gguf {
        architecture: "gemma2",
        modules: &[AROUND, DECODER],
        changes: PLUS_ONE,
        expected: &[TIED_HEAD, ("hidden_activation", GELU)],
    }),
    describe: |model| decoder(model, Differences { norms_at: Place::Around, ..OF_GEMMA }),
};

pub(super) static GEMMA3: Family = Family {
    names: ["gemma3_text", "Gemma3ForCausalLM"],
    like: Some(&GEMMA2),
    fields: &[
        POSITIONS.or(Missing::Size(131_072)),
        ROPE.or(Missing::Real(1e6)),
        LOCAL_THETA.or(Missing::Real(1e4)),
        VOCAB_SIZE.or(Missing::Size(262_208)),
        LOGIT_SOFT_CAP.or_nothing().with_nulls(),
        LAYER_TYPES.or(Missing::Size(6)),
        WINDOW_PATTERN.or_nothing(),
        SOFT_CAP.or_nothing().with_nulls(),
    ],
    refused: &NO_BIASES,
    gguf: Some(Gguf {
        architecture: "gemma3",
        modules: &[AROUND, DECODER, HEAD_NORMS],
        changes: PLUS_ONE,
        expected: &[
            TIED_HEAD,
            ("hidden_activation", GELU),
            UNCAPPED,
            ("final_logit_softcapping", &["null"]),
        ],
    }),
    describe: |model| {
        let rope = |_: &_, _, of: Attention| Some(usize::from(of.window.is_some()));
        decoder(
            model,
            Differences {
                norms_at: Place::Around,
                head_norms: HeadsNormed::Each,
                rope,
                ..OF_GEMMA
            },
        )
    },
};

const OF_GEMMA: Differences = Differences {
    norms: NormKind::RmsPlusOne,
    scaled_embedding: true,
    padding: Some(0),
    ..Differences::NONE
};

/// llama.cpp takes the logits of the embedding.
const TIED_HEAD: (&str, &[&str]) = ("tie_word_embeddings", &["true"]);
/// Norms before and after each block, by llama.cpp's names.
const AROUND: &[(&str, &str)] = &[
    ("post_attention_layernorm", "post_attention_norm"),
    ("pre_feedforward_layernorm", "ffn_norm"),
    ("post_feedforward_layernorm", "post_ffw_norm"),
];
const PLUS_ONE: &[(&str, Change)] = &[
    ("norm", Change::PlusOne),
    ("input_layernorm", Change::PlusOne),
    ("post_attention_layernorm", Change::PlusOne),
    ("pre_feedforward_layernorm", Change::PlusOne),
    ("post_feedforward_layernorm", Change::PlusOne),
    ("self_attn.q_norm", Change::PlusOne),
    ("self_attn.k_norm", Change::PlusOne),
];

/// A second field that names the activation. Another one there would be for a version of transformers that computes
/// something else.
static OTHER_ACT: Slot = Slot::number(
    "hidden_activation",
    Kind::Custom { read: read_other_act, write: |_, _| vec![] },
    "The same as `hidden_act`, as Gemma 2 and 3 spell it. Default `\"gelu_pytorch_tanh\"`.",
)
.typed(ACTIVATIONS);

fn read_other_act(field: &Field, fields: &mut Fields<'_>, config: &mut ModelConfig) -> Result<()> {
    let Some(value) = fields.take_set(field.name)? else { return Ok(()) };
    let (found, name) = (config.hidden_act, config.spelled(HIDDEN_ACT.name));
    if activation(field.name, &value)? == found {
        return Ok(());
    }
    Err(refuse(field.name, &value, &format!("\"{}\", as {name}", found.name())))
}
