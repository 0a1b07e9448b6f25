//! Into how many ranges of keys decode attention is cut.

use super::decode_tile::{QueryHeads, pick};
use crate::caps::Capabilities;
use crate::error::Result;
use crate::kernels::linear::team::matvec_merges;
use crate::kernels::shape::{
    AttentionShape, CacheAttention, DecodeSplits, PARTIAL_STATE, RANGE_KEYS, SplitReason,
};

/// A plan for at most this many keys has one range. More ranges need a merge, which is another dispatch.
const ONE_RANGE: usize = 256;
/// Up to this many elements (keys × head_dim), one workgroup per query head is as fast as several ranges and a merge.
pub(super) const SHORT_CONTEXT: usize = 1024 * 64;
/// The largest group of query heads for which this is assumed. It was measured for up to three.
const MOST_GROUP: usize = 4;
/// Workgroups that keep the memory of a [`GpuClass::LARGE`](crate::caps::GpuClass) busy, eight per unit:
/// half as many read a packed cache of 32,768 tokens 14 % slower.
const GROUPS: usize = 1056;
/// Most ranges of one merge: with 264 the kernels took 12 % longer.
const MOST_RANGES: usize = 128;
/// Invocations that keep a CPU busy: a subgroup of 8 for each of four cores.
const SOFTWARE_INVOCATIONS: usize = 32;

/// Workgroups wanted: fewer for wide heads, since a workgroup then has more bytes in flight.
fn groups(caps: &Capabilities, shape: AttentionShape) -> usize {
    caps.class().workgroups(GROUPS) * 64 / shape.head_dim.max(64)
}

impl DecodeSplits {
    /// This number of ranges: for measurements and tests.
    pub const fn given(count: usize) -> Self {
        Self { count, reason: SplitReason::Given }
    }

    pub(super) fn reason(&self) -> String {
        let count = self.count;
        match self.reason {
            SplitReason::OneRange { keys } => {
                format!("one range: {keys} keys are not worth a merge")
            }
            SplitReason::FillsDevice { each, wanted, unit } => format!(
                "at most {count} ranges of at least {RANGE_KEYS} keys, for {} of {wanted} {unit}",
                count * each
            ),
            SplitReason::Merged { keys } => {
                format!("{count} ranges of up to {keys} keys, merged by the product behind them")
            }
            SplitReason::Given => format!("{count} ranges were asked for"),
        }
    }

    /// Elements of the partial results of a batch item: none for one range.
    pub const fn partials(&self, shape: &AttentionShape) -> usize {
        if self.count == 1 {
            0
        } else {
            shape.heads * self.count * (shape.head_dim + PARTIAL_STATE)
        }
    }
}

/// The ranges for `batch` queries, each of which sees up to `keys` keys.
///
/// # Errors
/// `limit-exceeded` when no workgroup fits.
pub fn decode_splits(
    caps: &Capabilities,
    shape: AttentionShape,
    keys: usize,
    batch: usize,
) -> Result<DecodeSplits> {
    if keys <= ONE_RANGE {
        return Ok(DecodeSplits { count: 1, reason: SplitReason::OneRange { keys } });
    }
    let (wanted, each, unit) = if caps.software {
        (SOFTWARE_INVOCATIONS, shape.heads * batch, "invocations")
    } else {
        let tile = pick(caps, shape, QueryHeads::Grouped)?;
        (groups(caps, shape), shape.kv_heads * tile.blocks(shape) * batch, "workgroups")
    };
    let most = keys.div_ceil(RANGE_KEYS).min(MOST_RANGES);
    let count = (wanted / each.max(1)).clamp(1, most);
    Ok(DecodeSplits { count, reason: SplitReason::FillsDevice { each, wanted, unit } })
}

/// Most keys that a query reads in one range while a text is short: a merge would cost another dispatch. 0 where
/// that is not expected to pay: on a CPU, whose dispatches cost little; without subgroups, where a wide workgroup
/// waits at barriers; and where more query heads than were measured would read the same keys.
pub fn short_context_keys(caps: &Capabilities, shape: AttentionShape) -> usize {
    let group = shape.members();
    if caps.software || !caps.reduces_by_subgroup() || group > MOST_GROUP {
        return 0;
    }
    SHORT_CONTEXT / shape.head_dim.max(64)
}

/// The ranges of `batch` queries over the cache, each of a text of up to `most_keys` tokens.
///
/// # Errors
/// As [`decode_splits`].
pub fn cache_splits(
    caps: &Capabilities,
    attention: CacheAttention,
    most_keys: usize,
    batch: usize,
) -> Result<DecodeSplits> {
    let (shape, keys) = (attention.shape, attention.keys(most_keys));
    if keys <= short_context_keys(caps, shape) {
        return Ok(DecodeSplits { count: 1, reason: SplitReason::OneRange { keys } });
    }
    decode_splits(caps, shape, keys, batch)
}

/// The ranges of a short text where the output product merges them. None where it cannot, or where
/// [`Decoding::merged_ranges`](crate::caps::Decoding) prefers one range.
pub fn merged_splits(
    caps: &Capabilities,
    attention: CacheAttention,
    most_keys: usize,
) -> Option<DecodeSplits> {
    let (shape, keys) = (attention.shape, attention.keys(most_keys));
    let count = keys.div_ceil(RANGE_KEYS).min(caps.decoding().merged_ranges);
    let merges = count > 1 && matvec_merges(caps, shape.width());
    (merges && keys <= short_context_keys(caps, shape))
        .then_some(DecodeSplits { count, reason: SplitReason::Merged { keys } })
}
