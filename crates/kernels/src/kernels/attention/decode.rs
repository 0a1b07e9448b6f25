//! Attention of one query row over the key-value cache, or of one query row of each batch item over
//! tensors: in one range of keys or in several that a second kernel merges.

use super::decode_tile::{QueryHeads, SIZE, key_iterations, pick};
use crate::caps::Capabilities;
use crate::error::Result;
use crate::format::{Element, KvCacheFormat};
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
        let split = splits.count > 1;
        if caps.software {
            return self.row(caps, split);
        }
        let heads = match (over, splits.reason) {
            (DecodeOver::Tensors(..), _) => QueryHeads::Grouped,
            (_, SplitReason::Merged { .. }) => QueryHeads::One,
            _ if !split => QueryHeads::Alone,
            _ => QueryHeads::Grouped,
        };
        let tile = pick(caps, shape, heads)?;
        let subgroups = caps.reduces_by_subgroup();
        let composer = key_iterations(
            composer(*self, tile.size, (shape, over.scores()), &splits),
            &tile,
            shape,
        );
        let composer = over.place(composer, split);
        let composer = if subgroups { composer.with_subgroups() } else { composer };
        let lanes = if subgroups { "subgroup" } else { "tree" };
        let x = (over.batch() * shape.kv_heads * tile.blocks(shape)) as u32;
        composer.module("05_attention_decode").finish(
            caps,
            &over.bindings(split),
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
    fn row(&self, caps: &Capabilities, split: bool) -> Result<Kernel> {
        let Self { over, splits } = *self;
        let shape = over.shape();
        let size = workgroup_size(caps, 8, 1, self.name())?;
        let composer = composer(*self, size as usize, (shape, over.scores()), &splits)
            .unroll("VECTORS", shape.head_dim / 4);
        let invocations = over.batch() * shape.heads * splits.count;
        over.place(composer, split).module("05_attention_decode_row").finish(
            caps,
            &over.bindings(split),
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
    pub of: DecodePartials,
    pub splits: DecodeSplits,
}

impl Spec for AttentionDecodeMerge {
    fn name(&self) -> &'static str {
        "attention_decode_merge"
    }

    fn kernel(&self, caps: &Capabilities) -> Result<Kernel> {
        let Self { of, splits } = *self;
        let shape = of.shape();
        let vectors = shape.head_dim / 4;
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
        let composer = partials(*self, size, shape, &splits).size("COLUMNS", columns);
        of.place(composer).module("05_attention_decode_merge").finish(
            caps,
            &of.bindings(),
            Grid::Fixed { x: (of.batch() * shape.heads) as u32, y: (vectors / columns) as u32 },
            format!("{} ranges at a time", size / columns),
            format!("{columns} neighbouring vectors of up to {} ranges a workgroup", splits.count),
        )
    }
}

/// The constants of partial results.
fn partials(
    spec: impl Spec,
    size: usize,
    shape: AttentionShape,
    splits: &DecodeSplits,
) -> Composer {
    Composer::new(spec, size as u32)
        .size("HEADS", shape.heads)
        .size("KV_HEADS", shape.kv_heads)
        .size("MEMBERS", shape.members())
        .size("VECTORS", shape.head_dim / 4)
        .size("PARTIAL_VECTORS", (shape.head_dim + PARTIAL_STATE) / 4)
        .float("MASKED", MASKED)
        .size("SPLITS", splits.count)
        .size("RANGE_KEYS", RANGE_KEYS)
}

pub(super) fn composer(
    spec: impl Spec,
    size: usize,
    (shape, of_scores): (AttentionShape, Scores),
    splits: &DecodeSplits,
) -> Composer {
    scores(partials(spec, size, shape, splits), &shape, of_scores)
}

/// What is attended over.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum DecodeOver {
    /// A model's cache, by the newest row of a text.
    Cache(CacheAttention, KvCacheFormat),
    /// A model's cache with the texts of this many rows, by the newest row of each.
    Rows(CacheAttention, KvCacheFormat, usize),
    /// Tensors of this many batch items, one query row each.
    Tensors(AttentionShape, Scores, Element, usize),
}

/// Whose partial results are merged.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum DecodePartials {
    /// Results of the newest row of a text, which may see a window.
    Cache(AttentionShape, Option<usize>),
    /// Results of the newest row of each of this many texts.
    Rows(AttentionShape, Option<usize>, usize),
    /// Results of tensors of this many batch items.
    Tensors(AttentionShape, Element, usize),
}

impl DecodePartials {
    pub const fn shape(&self) -> AttentionShape {
        match *self {
            Self::Cache(shape, _) | Self::Rows(shape, ..) | Self::Tensors(shape, ..) => shape,
        }
    }

    const fn batch(&self) -> usize {
        match *self {
            Self::Cache(..) => 1,
            Self::Rows(.., batch) | Self::Tensors(.., batch) => batch,
        }
    }

    /// What says which keys a query sees, what is written, and the uniform.
    const fn ends(&self) -> (&'static [&'static str], &'static [&'static str], &'static str) {
        match self {
            Self::Cache(..) => (&[], &["output"], "step"),
            Self::Rows(..) => (&["documents"], &["output"], "step"),
            Self::Tensors(..) => (&["mask"], &["output", "lse"], "geometry"),
        }
    }

    fn bindings(&self) -> Vec<Binding> {
        let (seen, output, last) = self.ends();
        let reads = ["partials"].iter().chain(seen).copied().map(read);
        reads.chain(output.iter().copied().map(read_write)).chain([uniform(last)]).collect()
    }

    fn flags(&self, composer: Composer) -> Composer {
        composer
            .when("TENSORS", matches!(self, Self::Tensors(..)))
            .when("BATCHED", matches!(self, Self::Rows(..)))
    }

    /// The constants and flags of a merge: it reads partial results, and neither keys nor values.
    fn place(&self, composer: Composer) -> Composer {
        let composer = self.flags(composer).when("SPLIT", false).when("MERGED", true);
        match *self {
            Self::Cache(_, window) | Self::Rows(_, window, _) => window_of(composer, window),
            Self::Tensors(_, element, _) => composer.when("F16", element == Element::F16),
        }
    }
}

fn window_of(composer: Composer, window: Option<usize>) -> Composer {
    composer.size("WINDOW", window.unwrap_or(u32::MAX as usize))
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

    /// What its ranges leave.
    pub const fn partials(&self) -> DecodePartials {
        match *self {
            Self::Cache(attention, _) => DecodePartials::Cache(attention.shape, attention.window),
            Self::Rows(attention, _, rows) => {
                DecodePartials::Rows(attention.shape, attention.window, rows)
            }
            Self::Tensors(shape, _, element, batch) => {
                DecodePartials::Tensors(shape, element, batch)
            }
        }
    }

    /// What is read, then what is written, and the uniform.
    fn bindings(&self, split: bool) -> Vec<Binding> {
        let (seen, output, last) = self.partials().ends();
        let keys: &[_] = match self {
            Self::Cache(..) | Self::Rows(..) => &["cache"],
            Self::Tensors(..) => &["keys", "values"],
        };
        let reads = [&["query"], keys, seen].concat().into_iter().map(read);
        let writes = if split { &["partials"] } else { output };
        reads.chain(writes.iter().copied().map(read_write)).chain([uniform(last)]).collect()
    }

    /// The constants and flags by which a kernel reads and writes: `lib/attention/decode_operands.wgsl`.
    fn place(&self, composer: Composer, split: bool) -> Composer {
        let composer = self.partials().flags(composer).when("SPLIT", split).when("MERGED", false);
        match self {
            Self::Cache(attention, cache) | Self::Rows(attention, cache, _) => {
                let CacheAttention { shape, window, ring, .. } = *attention;
                let composer =
                    key_rows(cache_flags(cache_sizes(composer, *cache, &shape), *cache), ring);
                window_of(composer, window).size("ROW_VECTORS", shape.stride() / 4)
            }
            Self::Tensors(_, _, element, _) => {
                key_rows(composer.when("F16", *element == Element::F16), None)
            }
        }
    }
}
