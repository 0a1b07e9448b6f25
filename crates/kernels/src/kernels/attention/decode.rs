//! Attention of one query row over the key-value cache, or of one query row of each batch item over
//! tensors: in one range of keys or in several that a second kernel merges.

use super::decode_place::{DecodePlace, DecodeStage};
use super::specs::{
    AttentionDecode, AttentionDecodeMerge, AttentionDecodeMergeSeveral,
    AttentionDecodeMergeTensors, AttentionDecodeSeveral, AttentionDecodeTensors,
};
use crate::caps::Capabilities;
use crate::error::{Error, Result};
use crate::format::{Element, KvCache};
use crate::kernels::compose::{Composer, Grid, Kernel, Spec};
use crate::kernels::limits::{check_storage, workgroup_size};
use crate::kernels::linear::team::matvec_merges;
use crate::kernels::modules::scores;
use crate::kernels::shape::{
    AttentionShape, DecodeSplits, MASKED, PARTIAL_STATE, RANGE_KEYS, SplitReason,
};
use crate::kernels::spec::KernelSpec;

/// Longest cache that one workgroup per key-value head reads: the merge would cost another dispatch.
const SHORT: usize = 256;
/// Elements of keys that a workgroup per query head reads as fast as ranges and the dispatch that merges them.
const NEAR: usize = 1024 * 64;
/// Most query heads per key-value head with which that was measured, and one more.
const MOST_NEAR: usize = 4;
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
    /// So many ranges: for measurements and tests.
    pub const fn given(count: usize) -> Self {
        Self { count, reason: SplitReason::Given }
    }

    fn reason(&self) -> String {
        let count = self.count;
        match self.reason {
            SplitReason::Short { keys } => format!("one range: {keys} keys are not worth a merge"),
            SplitReason::Busy { each, wanted, unit } => format!(
                "at most {count} ranges of at least {RANGE_KEYS} keys, for {} of {wanted} {unit}",
                count * each
            ),
            SplitReason::Near { keys } => {
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

/// The ranges for `batch` queries, each of a text of up to `capacity` tokens, of which it sees the
/// last `shape.window`.
///
/// # Errors
/// `limit-exceeded` when no workgroup fits.
pub fn decode_splits(
    caps: &Capabilities,
    shape: AttentionShape,
    capacity: usize,
    batch: usize,
) -> Result<DecodeSplits> {
    let capacity = shape.window.map_or(capacity, |window| window.min(capacity));
    if capacity <= SHORT {
        return Ok(DecodeSplits { count: 1, reason: SplitReason::Short { keys: capacity } });
    }
    let (wanted, each, unit) = if caps.software {
        (SOFTWARE_INVOCATIONS, shape.heads * batch, "invocations")
    } else {
        let tile = pick(caps, shape, Heads::Shared)?;
        (groups(caps, shape), shape.kv_heads * tile.blocks(shape) * batch, "workgroups")
    };
    let most = capacity.div_ceil(RANGE_KEYS).min(MOST_RANGES);
    let count = (wanted / each.max(1)).clamp(1, most);
    Ok(DecodeSplits { count, reason: SplitReason::Busy { each, wanted, unit } })
}

/// Most keys that a query reads in one range while a text is short: a merge would cost another dispatch. 0 where
/// that is not expected to pay: on a CPU, whose dispatches cost little; without subgroups, where a wide workgroup
/// waits at barriers; and where more query heads than were measured would read the same keys.
pub fn near_keys(caps: &Capabilities, shape: AttentionShape) -> usize {
    let shared = shape.heads / shape.kv_heads;
    if caps.software || !caps.reduces_by_subgroup() || shared > MOST_NEAR {
        return 0;
    }
    NEAR / shape.head_dim.max(64)
}

/// The ranges of `batch` queries over the cache, each of a text of up to `capacity` tokens.
///
/// # Errors
/// As [`decode_splits`].
pub fn cache_splits(
    caps: &Capabilities,
    shape: AttentionShape,
    capacity: usize,
    batch: usize,
) -> Result<DecodeSplits> {
    let keys = shape.window.map_or(capacity, |window| window.min(capacity));
    if keys <= near_keys(caps, shape) {
        return Ok(DecodeSplits { count: 1, reason: SplitReason::Short { keys } });
    }
    decode_splits(caps, shape, capacity, batch)
}

/// The ranges of a short text whose results a product of `shape.width()` numbers puts together; none where it cannot,
/// or where [`Decoding::near_ranges`](crate::caps::Decoding) says that one is better.
pub fn near_splits(
    caps: &Capabilities,
    shape: AttentionShape,
    capacity: usize,
) -> Option<DecodeSplits> {
    let keys = shape.window.map_or(capacity, |window| window.min(capacity));
    let count = keys.div_ceil(RANGE_KEYS).min(caps.decoding().near_ranges);
    let merges = count > 1 && matvec_merges(caps, shape.width());
    (merges && keys <= near_keys(caps, shape))
        .then_some(DecodeSplits { count, reason: SplitReason::Near { keys } })
}

/// A workgroup of `size` invocations. `lanes` invocations share a key, each has `keys` keys per iteration,
/// for `group` query heads.
#[derive(Clone, Copy, Debug)]
pub(super) struct Tile {
    pub size: usize,
    pub lanes: usize,
    /// Neighbours whose keys meet without workgroup memory.
    team: usize,
    keys: usize,
    group: usize,
}

impl Tile {
    fn blocks(&self, shape: AttentionShape) -> usize {
        (shape.heads / shape.kv_heads).div_ceil(self.group)
    }

    /// Workgroup memory.
    pub fn bytes(&self, shape: AttentionShape, subgroups: bool) -> usize {
        let (vectors, slots) = (shape.head_dim / 4, self.size / self.lanes);
        let teams = self.size / self.team;
        let scores = self.keys * self.group;
        let sums = if subgroups { 0 } else { 4 * scores * (self.size + slots) };
        let aligned = |bytes: usize| bytes.next_multiple_of(16);
        16 * vectors * (self.group + teams) + aligned(8 * teams * self.group) + aligned(sums) + 16
    }
}

/// Vectors of results that an invocation keeps. They stay in registers, beside the keys and values in flight.
const REGISTERS: usize = 16;
/// Vectors of keys, and as many of values, that an invocation has in flight.
const IN_FLIGHT: usize = 8;
/// Scores that an invocation keeps at a time.
const SCORES: usize = 32;
/// Most teams whose results meet without a loop.
const UNROLLED_TEAMS: usize = 16;
/// Neighbours that share a key, where the head is wide enough: together they read 128 bytes of it.
const LANES: usize = 8;
/// Most neighbours that share a key.
const MOST_LANES: usize = 32;
/// Invocations of a workgroup.
const SIZE: usize = 128;
/// The same where one range is all: a workgroup for each query head.
const SIZE_ALONE: usize = 512;

/// Neighbours that share a key: more than [`LANES`] only where each would need too many registers.
fn lanes(caps: &Capabilities, shape: AttentionShape, group: usize) -> usize {
    let vectors = shape.head_dim / 4;
    let narrowest =
        if caps.reduces_by_subgroup() { caps.subgroup_size[0] as usize } else { MOST_LANES };
    let most = (1 << vectors.trailing_zeros()).min(narrowest).min(MOST_LANES);
    let mut lanes = most.min(LANES);
    while lanes < most && group * vectors / lanes > REGISTERS / 2 {
        lanes *= 2;
    }
    lanes
}

/// Which query heads a workgroup has.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Heads {
    /// Those of a key-value head, if they fit.
    Shared,
    /// One, and a range of its keys.
    One,
    /// The same behind the product that gives its query, in so many invocations.
    Newest(usize),
    /// One, and all of its keys.
    Alone,
}

/// The largest workgroup that fits.
pub(super) fn pick(caps: &Capabilities, shape: AttentionShape, heads: Heads) -> Result<Tile> {
    let name = "attention_decode";
    let alone = heads != Heads::Shared;
    let (most, range) = match heads {
        Heads::Alone => (SIZE_ALONE, NEAR),
        Heads::Newest(size) => (size, RANGE_KEYS),
        Heads::Shared | Heads::One => (SIZE, RANGE_KEYS),
    };
    let invocations = workgroup_size(caps, most as u32, 1, name)? as usize;
    let storage = caps.limits.max_compute_workgroup_storage_size as usize;
    let subgroups = caps.reduces_by_subgroup();
    let queries = shape.heads / shape.kv_heads;
    let narrowest = if subgroups { caps.subgroup_size[0] as usize } else { 1 };
    let mut smallest = usize::MAX;
    for registers in [REGISTERS, usize::MAX] {
        for blocks in if alone { queries } else { 1 }..=queries {
            let group = queries.div_ceil(blocks);
            let lanes = lanes(caps, shape, group).min(invocations);
            let own = shape.head_dim / 4 / lanes;
            if group * own > registers {
                continue;
            }
            let mut size = invocations.min(range * lanes);
            while size >= lanes {
                let most =
                    (range * lanes / size).min(IN_FLIGHT.div_ceil(own)).min(SCORES.div_ceil(group));
                let mut keys = 1 << most.ilog2();
                while keys >= 1 {
                    let team = narrowest.clamp(lanes, size);
                    let tile = Tile { size, lanes, team, keys, group };
                    let bytes = tile.bytes(shape, subgroups);
                    if bytes <= storage {
                        return Ok(tile);
                    }
                    smallest = smallest.min(bytes);
                    keys /= 2;
                }
                size /= 2;
            }
        }
    }
    let limit = "maxComputeWorkgroupStorageSize";
    Err(Error::limit(limit, storage as u64, smallest as u64, name))
}

pub(super) fn composer(
    spec: KernelSpec,
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

/// The sizes of a workgroup's turns over its keys.
pub(super) fn turns(composer: Composer, tile: &Tile, shape: AttentionShape) -> Composer {
    let composer = composer
        .size("LANES", tile.lanes)
        .size("TEAM", tile.team)
        .unrolled("LANE_STEPS", tile.lanes.ilog2() as usize)
        .unrolled("TEAM_STEPS", (tile.team / tile.lanes).ilog2() as usize);
    let teams = tile.size / tile.team;
    let composer = if teams <= UNROLLED_TEAMS {
        composer.unrolled("TEAMS", teams)
    } else {
        composer.size("TEAMS", teams)
    };
    composer
        .unrolled("TURN_KEYS", tile.keys)
        .unrolled("GROUP", tile.group)
        .unrolled("OWN", shape.head_dim / 4 / tile.lanes)
}

/// `attention_decode`, or for several ranges `attention_decode_split`: one query row against the
/// cache. Bindings: query, cache, output or partials, step.
///
/// # Errors
/// `limit-exceeded` when no workgroup fits.
pub fn attention_decode(
    caps: &Capabilities,
    shape: AttentionShape,
    cache: KvCache,
    splits: &DecodeSplits,
) -> Result<Kernel> {
    decode(caps, shape, DecodePlace::Cache(cache), splits)
}

/// [`attention_decode`] of the newest row of each of `rows` texts, which the cache has one behind the other.
/// Bindings: query, cache, documents, output or partials (`rows` times [`DecodeSplits::partials`]), step.
///
/// # Errors
/// `limit-exceeded` when no workgroup fits.
pub fn attention_decode_several(
    caps: &Capabilities,
    shape: AttentionShape,
    cache: KvCache,
    splits: &DecodeSplits,
    rows: usize,
) -> Result<Kernel> {
    decode(caps, shape, DecodePlace::Several(cache, rows), splits)
}

/// [`attention_decode`] of one query row of each batch item over tensors: a query sees the interval
/// of keys that the mask's words give (`shape.window` is not looked at), an empty one gives zeros.
/// Only the grid depends on `batch`. Bindings: query, keys, values, mask, then output and logsumexp,
/// or partials (`batch` times [`DecodeSplits::partials`]), then the [`Geometry`](super::tensors::Geometry).
///
/// # Errors
/// `limit-exceeded` when no workgroup fits.
pub fn attention_decode_tensors(
    caps: &Capabilities,
    shape: AttentionShape,
    element: Element,
    splits: &DecodeSplits,
    batch: usize,
) -> Result<Kernel> {
    decode(caps, shape, DecodePlace::Tensors(element, batch), splits)
}

fn decode(
    caps: &Capabilities,
    shape: AttentionShape,
    place: DecodePlace,
    splits: &DecodeSplits,
) -> Result<Kernel> {
    let stage = if splits.count == 1 { DecodeStage::Whole } else { DecodeStage::Split };
    let spec: KernelSpec = match place {
        DecodePlace::Cache(cache) => AttentionDecode { shape, cache, splits: *splits }.into(),
        DecodePlace::Several(cache, rows) => {
            AttentionDecodeSeveral { shape, cache, splits: *splits, rows }.into()
        }
        DecodePlace::Tensors(element, batch) => {
            AttentionDecodeTensors { shape, element, splits: *splits, batch }.into()
        }
    };
    if caps.software {
        return row(caps, spec, shape, place, splits, stage);
    }
    let heads = match (place, splits.reason) {
        (DecodePlace::Tensors(..), _) => Heads::Shared,
        (_, SplitReason::Near { .. }) => Heads::One,
        _ if stage == DecodeStage::Whole => Heads::Alone,
        _ => Heads::Shared,
    };
    let tile = pick(caps, shape, heads)?;
    let subgroups = caps.reduces_by_subgroup();
    let composer = turns(composer(spec, tile.size, shape, splits), &tile, shape);
    let composer = place.modules(composer, shape, stage);
    let composer = if subgroups {
        composer.subgroup_module("lib/attention/lanes_subgroup")
    } else {
        composer.module("lib/attention/lanes_tree")
    };
    composer
        .module("lib/attention/decode_turns")
        .module("05_attention_decode")
        .finish(
        caps,
        &place.bindings(stage),
        Grid::Fixed {
            x: (place.batch() * shape.kv_heads * tile.blocks(shape)) as u32,
            y: splits.count as u32,
        },
        format!(
            "{} lanes per key of {}, {}",
            tile.lanes,
            place.name(),
            if subgroups { "subgroup" } else { "tree" }
        ),
        format!(
            "{}; each row read once for {} query heads, {} keys per lane in flight, {} bytes of workgroup memory",
            splits.reason(),
            tile.group,
            tile.keys,
            tile.bytes(shape, subgroups)
        ),
    )
}

/// The form for adapters that run on a CPU.
fn row(
    caps: &Capabilities,
    spec: KernelSpec,
    shape: AttentionShape,
    place: DecodePlace,
    splits: &DecodeSplits,
    stage: DecodeStage,
) -> Result<Kernel> {
    let size = workgroup_size(caps, 8, 1, spec.name())?;
    let composer =
        composer(spec, size as usize, shape, splits).unroll("VECTORS", shape.head_dim / 4);
    let invocations = place.batch() * shape.heads * splits.count;
    place.modules(composer, shape, stage).module("05_attention_decode_row").finish(
        caps,
        &place.bindings(stage),
        Grid::Fixed { x: invocations.div_ceil(size as usize) as u32, y: 1 },
        format!("invocation per head and range of {}", place.name()),
        format!("{}; the adapter runs on a CPU, where barriers are slow", splits.reason()),
    )
}

/// `attention_decode_merge`: the partial results of several ranges as one. Bindings: partials,
/// output, step.
///
/// # Errors
/// `limit-exceeded` when not even one invocation fits.
pub fn attention_decode_merge(
    caps: &Capabilities,
    shape: AttentionShape,
    splits: &DecodeSplits,
) -> Result<Kernel> {
    merge(caps, shape, DecodePlace::Cache(KvCache::F32), splits)
}

/// [`attention_decode_merge`] of what [`attention_decode_several`] left. Bindings: partials, documents, output,
/// step.
///
/// # Errors
/// `limit-exceeded` when not even one invocation fits.
pub fn attention_decode_merge_several(
    caps: &Capabilities,
    shape: AttentionShape,
    splits: &DecodeSplits,
    rows: usize,
) -> Result<Kernel> {
    merge(caps, shape, DecodePlace::Several(KvCache::F32, rows), splits)
}

/// [`attention_decode_merge`] of what [`attention_decode_tensors`] left. Bindings: partials, mask,
/// output, logsumexp, the [`Geometry`](super::tensors::Geometry).
///
/// # Errors
/// `limit-exceeded` when not even one invocation fits.
pub fn attention_decode_merge_tensors(
    caps: &Capabilities,
    shape: AttentionShape,
    element: Element,
    splits: &DecodeSplits,
    batch: usize,
) -> Result<Kernel> {
    merge(caps, shape, DecodePlace::Tensors(element, batch), splits)
}

fn merge(
    caps: &Capabilities,
    shape: AttentionShape,
    place: DecodePlace,
    splits: &DecodeSplits,
) -> Result<Kernel> {
    let spec: KernelSpec = match place {
        DecodePlace::Cache(_) => AttentionDecodeMerge { shape, splits: *splits }.into(),
        DecodePlace::Several(_, rows) => {
            AttentionDecodeMergeSeveral { shape, splits: *splits, rows }.into()
        }
        DecodePlace::Tensors(element, batch) => {
            AttentionDecodeMergeTensors { shape, element, splits: *splits, batch }.into()
        }
    };
    let name = spec.name();
    let vectors = shape.head_dim / 4;
    // Four neighbours read 64 bytes of a range's sum; the others take other ranges.
    let widest = workgroup_size(caps, if caps.software { 4 } else { SIZE as u32 }, 1, name)?;
    let columns = (1 << vectors.trailing_zeros()).min(4).min(widest as usize);
    let storage = caps.limits.max_compute_workgroup_storage_size;
    let most = (columns * splits.count.next_power_of_two()).min(widest as usize);
    let mut size = if caps.software { columns } else { most };
    while size > columns && 32 * size > storage as usize {
        size /= 2;
    }
    check_storage(caps, [32 * size as u32], name)?;
    let composer = composer(spec, size, shape, splits).size("COLUMNS", columns);
    place.modules(composer, shape, DecodeStage::Merge).module("05_attention_decode_merge").finish(
        caps,
        &place.bindings(DecodeStage::Merge),
        Grid::Fixed { x: (place.batch() * shape.heads) as u32, y: (vectors / columns) as u32 },
        format!("{} ranges at a time", size / columns),
        format!("{columns} neighbouring vectors of up to {} ranges a workgroup", splits.count),
    )
}
