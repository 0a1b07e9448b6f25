//! Attention of one query row over the key-value cache, or of one query row of each batch item over
//! tensors: in one range of keys or in several that a second kernel merges.

use super::decode_tile::{QueryHeads, SIZE, pick, turns};
use crate::caps::Capabilities;
use crate::error::Result;
use crate::format::{Element, KvCache};
use crate::kernels::compose::{Binding, Composer, Grid, Kernel, Spec, read, read_write, uniform};
use crate::kernels::limits::{check_storage, workgroup_size};
use crate::kernels::modules::{cache_flags, cache_sizes, key_rows, scores};
use crate::kernels::shape::{
    AttentionShape, CacheAttention, DecodeSplits, MASKED, PARTIAL_STATE, RANGE_KEYS, Scores,
    SplitReason,
};

/// The queries of the newest row of each text over its keys: the result where `splits.count` is 1
/// (`attention_decode`), else partial ones (`attention_decode_split`). Bindings: query, cache, of several rows
/// documents, output or partials (of each row [`DecodeSplits::partials`]), step.
///
/// Over tensors a query sees the interval of keys that the mask's words give, an empty one gives zeros. Bindings: query, keys, values, mask, then output and logsumexp, or partials, then the
/// [`Geometry`](super::tensors::Geometry).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct AttentionDecode {
    pub over: DecodeOver,
    pub splits: DecodeSplits,
}

impl Spec for AttentionDecode {
    fn name(&self) -> &'static str {
        if self.splits.count == 1 { "attention_decode" } else { "attention_decode_split" }
    }

    fn kernel(&self, caps: &Capabilities) -> Result<Kernel> {
        let Self { over, splits } = *self;
        let shape = over.shape();
        let stage = if splits.count == 1 { DecodeStage::Whole } else { DecodeStage::Split };
        if caps.software {
            return self.row(caps, stage);
        }
        let heads = match (over, splits.reason) {
            (DecodeOver::Tensors(..), _) => QueryHeads::Shared,
            (_, SplitReason::Merged { .. }) => QueryHeads::One,
            _ if stage == DecodeStage::Whole => QueryHeads::Alone,
            _ => QueryHeads::Shared,
        };
        let tile = pick(caps, shape, heads)?;
        let subgroups = caps.reduces_by_subgroup();
        let composer =
            turns(composer(*self, tile.size, (shape, over.scores()), &splits), &tile, shape);
        let composer = over.place(composer, stage);
        let composer = if subgroups { composer.with_subgroups() } else { composer };
        let lanes = if subgroups { "subgroup" } else { "tree" };
        let x = (over.batch() * shape.kv_heads * tile.blocks(shape)) as u32;
        composer.module("05_attention_decode").finish(
            caps,
            &over.bindings(stage),
            Grid::Fixed { x, y: splits.count as u32 },
            format!("{} lanes per key of {}, {lanes}", tile.lanes, over.name()),
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
        let Self { over, splits } = *self;
        let shape = over.shape();
        let size = workgroup_size(caps, 8, 1, self.name())?;
        let composer = composer(*self, size as usize, (shape, over.scores()), &splits)
            .unroll("VECTORS", shape.head_dim / 4);
        let invocations = over.batch() * shape.heads * splits.count;
        over.place(composer, stage).module("05_attention_decode_row").finish(
            caps,
            &over.bindings(stage),
            Grid::Fixed { x: invocations.div_ceil(size as usize) as u32, y: 1 },
            format!("invocation per head and range of {}", over.name()),
            format!("{}; the adapter runs on a CPU, where barriers are slow", splits.reason()),
        )
    }
}

/// The partial results of several ranges as one. Bindings: partials, of several rows documents, output, step; over
/// tensors partials, mask, output, logsumexp, the [`Geometry`](super::tensors::Geometry).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct AttentionDecodeMerge {
    pub over: DecodeOver,
    pub splits: DecodeSplits,
}

impl Spec for AttentionDecodeMerge {
    fn name(&self) -> &'static str {
        "attention_decode_merge"
    }

    fn kernel(&self, caps: &Capabilities) -> Result<Kernel> {
        let Self { over, splits } = *self;
        let shape = over.shape();
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
        let composer =
            composer(*self, size, (shape, over.scores()), &splits).size("COLUMNS", columns);
        over.place(composer, stage).module("05_attention_decode_merge").finish(
            caps,
            &over.bindings(stage),
            Grid::Fixed { x: (over.batch() * shape.heads) as u32, y: (vectors / columns) as u32 },
            format!("{} ranges at a time", size / columns),
            format!("{columns} neighbouring vectors of up to {} ranges a workgroup", splits.count),
        )
    }
}

pub(super) fn composer(
    spec: impl Spec,
    size: usize,
    (shape, of_scores): (AttentionShape, Scores),
    splits: &DecodeSplits,
) -> Composer {
    let composer = Composer::new(spec, size as u32)
        .size("HEADS", shape.heads)
        .size("KV_HEADS", shape.kv_heads)
        .size("MEMBERS", shape.members())
        .size("VECTORS", shape.head_dim / 4)
        .size("PARTIAL_VECTORS", (shape.head_dim + PARTIAL_STATE) / 4)
        .float("MASKED", MASKED)
        .size("SPLITS", splits.count)
        .size("RANGE_KEYS", RANGE_KEYS);
    scores(composer, &shape, of_scores)
}

/// What is attended over.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum DecodeOver {
    /// A model's cache, by the newest row of a text.
    Cache(CacheAttention, KvCache),
    /// A model's cache with the texts of this many rows, by the newest row of each.
    Rows(CacheAttention, KvCache, usize),
    /// Tensors of this many batch items, one query row each.
    Tensors(AttentionShape, Scores, Element, usize),
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

impl DecodeOver {
    pub const fn shape(&self) -> AttentionShape {
        match self {
            Self::Cache(attention, _) | Self::Rows(attention, ..) => attention.shape,
            Self::Tensors(shape, ..) => *shape,
        }
    }

    const fn scores(&self) -> Scores {
        match self {
            Self::Cache(attention, _) | Self::Rows(attention, ..) => attention.scores,
            Self::Tensors(_, scores, ..) => *scores,
        }
    }

    const fn batch(&self) -> usize {
        match *self {
            Self::Cache(..) => 1,
            Self::Rows(.., batch) | Self::Tensors(.., batch) => batch,
        }
    }

    /// How elements are stored.
    fn name(&self) -> &'static str {
        match self {
            Self::Cache(_, cache) | Self::Rows(_, cache, _) => cache.name(),
            Self::Tensors(_, _, element, _) => element.name(),
        }
    }

    /// What is read, then what is written, and the uniform.
    fn bindings(&self, stage: DecodeStage) -> Vec<Binding> {
        let (keys, seen, output, last): (&[_], &[_], &[_], _) = match self {
            Self::Cache(..) => (&["cache"], &[], &["output"], "step"),
            Self::Rows(..) => (&["cache"], &["documents"], &["output"], "step"),
            Self::Tensors(..) => (&["keys", "values"], &["mask"], &["output", "lse"], "geometry"),
        };
        let reads = if stage == DecodeStage::Merge {
            [&["partials"], seen].concat()
        } else {
            [&["query"], keys, seen].concat()
        };
        let writes = if stage == DecodeStage::Split { &["partials"] } else { output };
        let reads = reads.into_iter().map(read);
        reads.chain(writes.iter().copied().map(read_write)).chain([uniform(last)]).collect()
    }

    /// The constants and flags by which a kernel reads and writes: `lib/attention/decode_operands.wgsl`.
    fn place(&self, composer: Composer, stage: DecodeStage) -> Composer {
        // It reads partial results, and neither keys nor values.
        let merges = stage == DecodeStage::Merge;
        let composer = composer
            .when("TENSORS", matches!(self, Self::Tensors(..)))
            .when("BATCHED", matches!(self, Self::Rows(..)))
            .when("SPLIT", stage == DecodeStage::Split)
            .when("MERGED", merges);
        match self {
            Self::Cache(attention, cache) | Self::Rows(attention, cache, _) => {
                let CacheAttention { shape, window, ring, .. } = *attention;
                let window = window.unwrap_or(u32::MAX as usize);
                if merges {
                    return composer.size("WINDOW", window);
                }
                let composer =
                    key_rows(cache_flags(cache_sizes(composer, *cache, &shape), *cache), ring);
                composer.size("WINDOW", window).size("ROW_VECTORS", shape.stride() / 4)
            }
            Self::Tensors(_, _, element, _) => {
                let composer = composer.when("F16", *element == Element::F16);
                if merges { composer } else { key_rows(composer, None) }
            }
        }
    }
}
