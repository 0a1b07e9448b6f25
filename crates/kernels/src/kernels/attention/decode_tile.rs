//! Workgroups of decode attention: who shares a key, how many keys are in flight, and what fits.

use super::decode_ranges::SHORT_CONTEXT;
use crate::caps::Capabilities;
use crate::error::{Error, Result};
use crate::kernels::compose::Composer;
use crate::kernels::limits::workgroup_size;
use crate::kernels::shape::{AttentionShape, RANGE_KEYS};

/// A workgroup of `size` invocations. `lanes` invocations share a key, each has `keys` keys per iteration,
/// for `group` query heads.
#[derive(Clone, Copy, Debug)]
pub(super) struct Tile {
    pub size: usize,
    pub lanes: usize,
    /// Neighbours whose keys meet without workgroup memory.
    team: usize,
    pub keys: usize,
    pub group: usize,
}

impl Tile {
    pub fn blocks(&self, shape: AttentionShape) -> usize {
        shape.members().div_ceil(self.group)
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
/// Vectors of keys that an invocation has in flight. It has as many vectors of values.
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
pub(super) const SIZE: usize = 128;
/// Invocations of a workgroup that reads all keys of a query head.
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
pub(super) enum QueryHeads {
    /// All query heads of a key-value head, if they fit.
    Grouped,
    /// One query head, and a range of its keys.
    One,
    /// One query head and a range of its keys, after the product that gives the query, in this many invocations.
    Qkv(usize),
    /// One query head, and all of its keys.
    Alone,
}

/// The largest workgroup that fits.
pub(super) fn pick(caps: &Capabilities, shape: AttentionShape, heads: QueryHeads) -> Result<Tile> {
    let name = "attention_decode";
    let alone = heads != QueryHeads::Grouped;
    let (most, range) = match heads {
        QueryHeads::Alone => (SIZE_ALONE, SHORT_CONTEXT),
        QueryHeads::Qkv(size) => (size, RANGE_KEYS),
        QueryHeads::Grouped | QueryHeads::One => (SIZE, RANGE_KEYS),
    };
    let invocations = workgroup_size(caps, most as u32, 1, name)? as usize;
    let storage = caps.limits.max_compute_workgroup_storage_size as usize;
    let subgroups = caps.reduces_by_subgroup();
    let queries = shape.members();
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

/// The sizes of a workgroup's iterations over its keys.
pub(super) fn key_iterations(composer: Composer, tile: &Tile, shape: AttentionShape) -> Composer {
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
