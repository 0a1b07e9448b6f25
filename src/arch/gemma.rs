//! Gemma (arXiv:2403.08295): Llama with norms by 1 + the weight, and embeddings times √hidden.
//! Gemma 2 (arXiv:2408.00118): also with norms of what each block adds, windows in every other layer, and soft
//! caps of scores and logits, which the config resolves.
//! Gemma 3 (arXiv:2503.19786): Gemma 2 with a norm of each head's queries and keys instead of the caps, and other
//! angles in layers with a window.

use super::describe::Describe;
use super::llama::{Differences, decoder};
use super::{Architecture, NormKind};

const GEMMA: Differences =
    Differences { norms: NormKind::RmsPlusOne, scaled_embedding: true, ..Differences::NONE };

pub(super) fn describe(model: Describe) -> Architecture {
    decoder(model, GEMMA)
}

pub(super) fn describe_2(model: Describe) -> Architecture {
    decoder(model, Differences { post_norms: true, ..GEMMA })
}

pub(super) fn describe_3(model: Describe) -> Architecture {
    decoder(model, Differences { post_norms: true, head_norms: true, ..GEMMA })
}
