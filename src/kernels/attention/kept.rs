//! The backward pair that keeps probabilities and score gradients between its kernels, in blocks of the
//! full tile: when it is chosen, and how it is made.

use super::batch::{backward_key_value, backward_query};
use super::matrix_backward::attention_backward_halves;
use super::tile::{FULL_TILE, SMALL_HEADS, attention_tiles};
use crate::caps::Capabilities;
use crate::error::Result;
use crate::kernels::compose::Kernel;
use crate::kernels::shape::{AttentionPass, AttentionShape, KeyValueOwner};

// Blocks of queries × keys are counted and read as squares.
const _: () = assert!(FULL_TILE.rows == FULL_TILE.columns);

/// Tokens of the longest batches for which the pair is chosen: what it keeps grows with their square. On
/// an NVIDIA H200 with heads of 64 it made the backward pass up to 16 % faster up to this length, and 3 %
/// faster at two and four times the length. With small heads, for which it has no tiles, it was between
/// 22 % slower and 4 % faster up to 1,024 tokens (`bench/NOTES.md`).
const KEPT_TOKENS: usize = 1024;
/// Most bytes that probabilities, and as many that score gradients, may take.
const KEPT_BYTES: u64 = 16 << 20;

/// Elements of the probabilities, and of the score gradients, that the backward kernels keep for
/// batches of up to `shape.tokens`; `None` where they compute them twice.
pub fn attention_kept(caps: &Capabilities, shape: AttentionShape) -> Option<u64> {
    // In 64 bits: the square of the tokens overflows a browser's 32.
    let tiles = shape.tokens.div_ceil(FULL_TILE.rows) as u64;
    let block = (FULL_TILE.rows * FULL_TILE.columns) as u64;
    let elements = shape.heads as u64 * tiles * tiles * block;
    let room = 4 * elements <= caps.limits.binding_bytes().min(KEPT_BYTES);
    let fits = |pass| attention_tiles(caps, shape, pass).contains(&FULL_TILE);
    let can = !caps.software && fits(AttentionPass::Query) && fits(AttentionPass::KeyValue);
    let storage = caps.limits.max_storage_buffers_per_shader_stage >= 8;
    let pays = shape.head_dim > SMALL_HEADS && (1..=KEPT_TOKENS).contains(&shape.tokens);
    // What is kept has no masks in it, and kernels of matrices multiply again.
    let wanted = shape.dropout.is_none() && !attention_backward_halves(caps, shape);
    (can && room && storage && pays && wanted).then_some(elements)
}

/// [`attention_backward_query`](super::batch::attention_backward_query) that also writes the probabilities and
/// the score gradients, in two more bindings, for batches of up to `shape.tokens`.
///
/// # Errors
/// `limit-exceeded` when the tile does not fit: see [`attention_kept`].
pub fn attention_backward_query_kept(caps: &Capabilities, shape: AttentionShape) -> Result<Kernel> {
    backward_query(caps, shape, true, None)
}

/// [`attention_backward_key_value`](super::batch::attention_backward_key_value) that reads what
/// [`attention_backward_query_kept`] has written.
///
/// # Errors
/// `limit-exceeded` when the tile does not fit: see [`attention_kept`].
pub fn attention_backward_key_value_kept(
    caps: &Capabilities,
    shape: AttentionShape,
    owner: KeyValueOwner,
    ends: usize,
) -> Result<Kernel> {
    backward_key_value(caps, shape, (owner, ends), true, None)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::caps::Target;

    #[test]
    fn scores_are_kept_as_long_as_they_are_small() {
        let mut caps = Capabilities::floor(Target::Browser);
        caps.limits.max_compute_workgroup_storage_size = 48 << 10;
        let of = |head_dim, heads, tokens| {
            let shape =
                AttentionShape { heads, kv_heads: heads, head_dim, tokens, ..Default::default() };
            attention_kept(&caps, shape)
        };
        let kept = |heads, tokens| of(64, heads, tokens);
        assert_eq!(kept(12, 0), None);
        assert_eq!(kept(12, 33), Some(12 * 64 * 64));
        assert_eq!(kept(12, 512), Some(12 * 512 * 512));
        assert_eq!(kept(12, 1024), None);
        assert_eq!(kept(1, KEPT_TOKENS), Some(1024 * 1024));
        assert_eq!(kept(1, KEPT_TOKENS + 1), None);
        assert_eq!(of(SMALL_HEADS, 12, 512), None);
        // 32 bits would wrap to no bytes at all.
        for tokens in [16_384, 32_768, 65_536, 16 << 20] {
            assert_eq!(kept(16, tokens), None);
        }
    }
}
