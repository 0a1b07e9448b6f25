//! Attention of one query row over the key-value cache, or of one query row of each batch item over
//! tensors: in one range of keys or in several that a second kernel merges.

use super::decode_tile::{QueryHeads, SIZE, pick, turns};
use crate::caps::Capabilities;
use crate::error::Result;
use crate::format::{Element, KvCache};
use crate::kernels::compose::{Binding, Composer, Grid, Kernel, Spec, read, read_write, uniform};
use crate::kernels::limits::{check_storage, workgroup_size};
use crate::kernels::modules::{cache_rows, key_rows, quads, scores};
use crate::kernels::shape::{
    AttentionShape, DecodeSplits, MASKED, PARTIAL_STATE, RANGE_KEYS, SplitReason,
};

/// The queries of the newest row of each text over its keys: the result where `splits.count` is 1
/// (`attention_decode`), else partial ones (`attention_decode_split`). Bindings: query, cache, of several rows
/// documents, output or partials (of each row [`DecodeSplits::partials`]), step.
///
/// Over tensors a query sees the interval of keys that the mask's words give (`shape.window` is not looked at), an empty
/// one gives zeros. Bindings: query, keys, values, mask, then output and logsumexp, or partials, then the
/// [`Geometry`](super::tensors::Geometry).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct AttentionDecode {
    pub shape: AttentionShape,
    pub place: DecodePlace,
    pub splits: DecodeSplits,
}

impl Spec for AttentionDecode {
    fn name(&self) -> &'static str {
        if self.splits.count == 1 { "attention_decode" } else { "attention_decode_split" }
    }

    fn kernel(&self, caps: &Capabilities) -> Result<Kernel> {
        let Self { shape, place, splits } = *self;
        let stage = if splits.count == 1 { DecodeStage::Whole } else { DecodeStage::Split };
        if caps.software {
            return self.row(caps, stage);
        }
        let heads = match (place, splits.reason) {
            (DecodePlace::Tensors(..), _) => QueryHeads::Shared,
            (_, SplitReason::Near { .. }) => QueryHeads::One,
            _ if stage == DecodeStage::Whole => QueryHeads::Alone,
            _ => QueryHeads::Shared,
        };
        let tile = pick(caps, shape, heads)?;
        let subgroups = caps.reduces_by_subgroup();
        let composer = turns(composer(*self, tile.size, shape, &splits), &tile, shape);
        let composer = place.modules(composer, shape, stage);
        let (composer, lanes) = if subgroups {
            (composer.subgroup_module("lib/attention/lanes_subgroup"), "subgroup")
        } else {
            (composer.module("lib/attention/lanes_tree"), "tree")
        };
        let x = (place.batch() * shape.kv_heads * tile.blocks(shape)) as u32;
        composer.module("lib/attention/decode_turns").module("05_attention_decode").finish(
            caps,
            &place.bindings(stage),
            Grid::Fixed { x, y: splits.count as u32 },
            format!("{} lanes per key of {}, {lanes}", tile.lanes, place.name()),
            format!(
                "{}; each row read once for {} query heads, {} keys per lane in flight, {} bytes of workgroup memory",
                splits.reason(),
                tile.group,
                tile.keys,
                tile.bytes(shape, subgroups)
            ),
        )
    }
}

impl AttentionDecode {
    /// The form for adapters that run on a CPU.
    fn row(&self, caps: &Capabilities, stage: DecodeStage) -> Result<Kernel> {
        let Self { shape, place, splits } = *self;
        let size = workgroup_size(caps, 8, 1, self.name())?;
        let composer =
            composer(*self, size as usize, shape, &splits).unroll("VECTORS", shape.head_dim / 4);
        let invocations = place.batch() * shape.heads * splits.count;
        place.modules(composer, shape, stage).module("05_attention_decode_row").finish(
            caps,
            &place.bindings(stage),
            Grid::Fixed { x: invocations.div_ceil(size as usize) as u32, y: 1 },
            format!("invocation per head and range of {}", place.name()),
            format!("{}; the adapter runs on a CPU, where barriers are slow", splits.reason()),
        )
    }
}

/// The partial results of several ranges as one. Bindings: partials, of several rows documents, output, step; over
/// tensors partials, mask, output, logsumexp, the [`Geometry`](super::tensors::Geometry).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct AttentionDecodeMerge {
    pub shape: AttentionShape,
    pub place: DecodePlace,
    pub splits: DecodeSplits,
}

impl Spec for AttentionDecodeMerge {
    fn name(&self) -> &'static str {
        "attention_decode_merge"
    }

    fn kernel(&self, caps: &Capabilities) -> Result<Kernel> {
        let Self { shape, place, splits } = *self;
        let (stage, vectors) = (DecodeStage::Merge, shape.head_dim / 4);
        // Four neighbours read 64 bytes of a range's sum; the others take other ranges.
        let most = if caps.software { 4 } else { SIZE as u32 };
        let widest = workgroup_size(caps, most, 1, self.name())? as usize;
        let columns = (1 << vectors.trailing_zeros()).min(4).min(widest);
        let storage = caps.limits.max_compute_workgroup_storage_size;
        let most = (columns * splits.count.next_power_of_two()).min(widest);
        let mut size = if caps.software { columns } else { most };
        while size > columns && 32 * size > storage as usize {
            size /= 2;
        }
        check_storage(caps, [32 * size as u32], self.name())?;
        let composer = composer(*self, size, shape, &splits).size("COLUMNS", columns);
        place.modules(composer, shape, stage).module("05_attention_decode_merge").finish(
            caps,
            &place.bindings(stage),
            Grid::Fixed { x: (place.batch() * shape.heads) as u32, y: (vectors / columns) as u32 },
            format!("{} ranges at a time", size / columns),
            format!("{columns} neighbouring vectors of up to {} ranges a workgroup", splits.count),
        )
    }
}

pub(super) fn composer(
    spec: impl Spec,
    size: usize,
    shape: AttentionShape,
    splits: &DecodeSplits,
) -> Composer {
    let composer = Composer::new(spec, size as u32)
        .size("HEADS", shape.heads)
        .size("KV_HEADS", shape.kv_heads)
        .size("MEMBERS", shape.heads / shape.kv_heads)
        .size("VECTORS", shape.head_dim / 4)
        .size("PARTIAL_VECTORS", (shape.head_dim + PARTIAL_STATE) / 4)
        .float("MASKED", MASKED)
        .size("SPLITS", splits.count)
        .size("RANGE_KEYS", RANGE_KEYS);
    scores(composer, &shape)
}

/// What is attended over.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum DecodePlace {
    /// A model's cache, by the newest row of a text.
    Cache(KvCache),
    /// A model's cache with the texts of this many rows, by the newest row of each.
    Rows(KvCache, usize),
    /// Tensors of this many batch items, one query row each.
    Tensors(Element, usize),
}

/// What a kernel of decode attention does.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum DecodeStage {
    /// All keys, to the result.
    Whole,
    /// A range of keys, to partial results.
    Split,
    /// Partial results to the result.
    Merge,
}

impl DecodePlace {
    fn batch(self) -> usize {
        match self {
            Self::Cache(_) => 1,
            Self::Rows(_, batch) | Self::Tensors(_, batch) => batch,
        }
    }

    /// How elements are stored.
    fn name(self) -> &'static str {
        match self {
            Self::Cache(cache) | Self::Rows(cache, _) => cache.name(),
            Self::Tensors(element, _) => element.name(),
        }
    }

    /// What is read. Of tensors, the last is the mask, of several rows the documents.
    const fn reads(self, stage: DecodeStage) -> &'static [&'static str] {
        match (self, stage) {
            (Self::Cache(_), DecodeStage::Merge) => &["partials"],
            (Self::Cache(_), _) => &["query", "cache"],
            (Self::Rows(..), DecodeStage::Merge) => &["partials", "documents"],
            (Self::Rows(..), _) => &["query", "cache", "documents"],
            (Self::Tensors(..), DecodeStage::Merge) => &["partials", "mask"],
            (Self::Tensors(..), _) => &["query", "keys", "values", "mask"],
        }
    }

    /// What is written, bound behind it.
    const fn writes(self, stage: DecodeStage) -> &'static [&'static str] {
        match (self, stage) {
            (_, DecodeStage::Split) => &["partials"],
            (Self::Cache(_) | Self::Rows(..), _) => &["output"],
            (Self::Tensors(..), _) => &["output", "lse"],
        }
    }

    fn bindings(self, stage: DecodeStage) -> Vec<Binding> {
        let mut bindings: Vec<Binding> = self.reads(stage).iter().copied().map(read).collect();
        bindings.extend(self.writes(stage).iter().copied().map(read_write));
        bindings.push(uniform(match self {
            Self::Cache(_) | Self::Rows(..) => "step",
            Self::Tensors(..) => "geometry",
        }));
        bindings
    }

    /// The constants and modules of a kernel that reads and writes here.
    fn modules(self, composer: Composer, shape: AttentionShape, stage: DecodeStage) -> Composer {
        let composer = match self {
            Self::Cache(_) => composer
                .size("WINDOW", shape.window.unwrap_or(u32::MAX as usize))
                .module("lib/step")
                .module("lib/attention/decode_seen_cache"),
            Self::Rows(..) => composer
                .size("WINDOW", shape.window.unwrap_or(u32::MAX as usize))
                .size("ROW_VECTORS", shape.stride() / 4)
                .module("lib/step")
                .module("lib/attention/decode_seen_several"),
            Self::Tensors(element, _) => quads(composer, element)
                .module("lib/attention/geometry")
                .module("lib/attention/decode_seen_tensors"),
        };
        let composer =
            if stage == DecodeStage::Merge { composer } else { self.inputs(composer, shape) };
        let composer = match stage {
            DecodeStage::Whole => composer.module("lib/attention/decode_whole"),
            DecodeStage::Split => composer
                .module("lib/attention/decode_ranges")
                .module("lib/attention/decode_partial"),
            DecodeStage::Merge => composer.module("lib/attention/decode_ranges"),
        };
        match self {
            _ if stage == DecodeStage::Split => composer,
            Self::Cache(_) | Self::Rows(..) => composer.module("lib/attention/decode_output_row"),
            Self::Tensors(..) => composer.module("lib/attention/decode_output_tensors"),
        }
    }

    fn inputs(self, composer: Composer, shape: AttentionShape) -> Composer {
        match self {
            Self::Cache(cache) => key_rows(cache_rows(composer, cache, &shape), shape.ring)
                .module("lib/attention/decode_cache"),
            Self::Rows(cache, _) => key_rows(cache_rows(composer, cache, &shape), shape.ring)
                .module("lib/attention/decode_several"),
            Self::Tensors(..) => key_rows(composer, None).module("lib/attention/decode_tensors"),
        }
    }
}
