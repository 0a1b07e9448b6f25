//! GPT-Neo (Black et al., "GPT-Neo", 2021; TinyStories, Eldan and Li, arXiv:2305.07759): GPT-2 with matrices stored
//! `[out, in]`, without biases of queries, keys and values, with windows in some layers, and scores as they are.

use super::describe::{Describe, Modules};
use super::gpt2::decoder;
use super::{Architecture, Attention, Layer, Stored};

pub(super) fn describe(model: Describe) -> Architecture {
    decoder(model, layer)
}

fn layer(model: &mut Describe, block: String, index: usize) -> Layer {
    let attention = Attention { scale: Some(1.0), ..model.attention(index) };
    let width = attention.width();
    model.plain_layer(
        attention,
        &Modules {
            block,
            qkv: &[
                ("attn.attention.q_proj", width),
                ("attn.attention.k_proj", width),
                ("attn.attention.v_proj", width),
            ],
            output: "attn.attention.out_proj",
            norms: ["ln_1", "ln_2"],
            up: "mlp.c_fc",
            down: "mlp.c_proj",
            stored: [Stored::Rows; 2],
            biased: [false, true],
            parallel: false,
        },
    )
}
