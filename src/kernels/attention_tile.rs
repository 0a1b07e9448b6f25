//! Tiles of the attention kernels: how much workgroup memory each takes, which one a shape gets.

use super::attention::AttentionShape;
use super::compose::Composer;
use crate::caps::Capabilities;
use crate::error::{Error, Result};

/// Tile of the shared scheme in `lib/attention_tile.wgsl`: `rows` × `columns` scores a turn by
/// `row_groups` × `size / row_groups` invocations. Rows a group are a multiple of 4.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct AttentionTile {
    pub rows: usize,
    pub columns: usize,
    pub row_groups: usize,
    pub size: usize,
    /// Rows stay in workgroup memory; else they are staged again, in parts, for each tile of columns.
    pub resident: bool,
}

const FULL_TILE: AttentionTile = AttentionTile::resident(32, 32, 8, 128);
const HALF_TILE: AttentionTile = AttentionTile::resident(16, 32, 4, 64);
const PARTS_TILE: AttentionTile = AttentionTile::new(32, 32, 8, 128);
/// Candidates in order of preference, measured on an NVIDIA H200 (`bench/NOTES.md`): more rows or
/// more results an invocation lost at every length and head_dim, and so did fewer, except that the
/// half tile fills a GPU better with a short batch. The last two fit where nothing else does.
const TILES: [AttentionTile; 6] = [
    FULL_TILE,
    HALF_TILE,
    PARTS_TILE,
    AttentionTile::new(32, 16, 8, 128),
    AttentionTile::new(16, 8, 4, 32),
    AttentionTile::new(8, 4, 2, 8),
];

/// The three kernels that share the tiling.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum AttentionPass {
    Forward,
    /// The gradient of queries.
    Query,
    /// The gradients of keys and values.
    KeyValue,
}

impl AttentionPass {
    /// Kinds of rows, of columns and of weights in workgroup memory.
    const fn kinds(self) -> [usize; 3] {
        match self {
            Self::Forward => [1, 1, 1],
            Self::Query => [2, 2, 1],
            Self::KeyValue => [2, 2, 2],
        }
    }

    /// Most workgroups that begin with the longest tiles of all owners. On an NVIDIA H200 that took up
    /// to 39 % off a kernel's time; it cost 1 to 3 % in a few kernels just below these limits, and
    /// beyond them mostly more, up to 10 % (`bench/NOTES.md`).
    pub const fn interleaved(self) -> usize {
        match self {
            Self::Forward | Self::Query => 4096,
            Self::KeyValue => 1024,
        }
    }

    pub const fn kernel_name(self) -> &'static str {
        match self {
            Self::Forward => "attention_forward",
            Self::Query => "attention_backward_query",
            Self::KeyValue => "attention_backward_key_value",
        }
    }
}

impl AttentionTile {
    pub const fn new(rows: usize, columns: usize, row_groups: usize, size: usize) -> Self {
        Self { rows, columns, row_groups, size, resident: false }
    }

    pub const fn resident(rows: usize, columns: usize, row_groups: usize, size: usize) -> Self {
        Self { rows, columns, row_groups, size, resident: true }
    }

    const fn column_groups(&self) -> usize {
        self.size / self.row_groups
    }

    fn bytes(&self, shape: AttentionShape, pass: AttentionPass, chunk: usize) -> usize {
        let [rows, columns, weights] = pass.kinds();
        let statistics = if pass == AttentionPass::Forward {
            self.column_groups() * (self.rows + 1) + 2 * self.rows
        } else {
            0
        };
        let row_tile = rows * self.rows * (chunk | 1);
        let column_tile = columns * self.columns * ((shape.head_dim / 4) | 1);
        let quads = self.rows / self.row_groups / 4;
        let weight_tile = weights * self.columns * quads * (self.row_groups | 1);
        16 * (row_tile + column_tile + weight_tile) + 4 * statistics
    }

    /// Invocations that share each vector left over when `vectors` are dealt out to the column groups;
    /// 1 where these cannot be divided so, or the shares do not fit the tile of columns.
    const fn shares(&self, vectors: usize) -> usize {
        let rest = vectors % self.column_groups();
        if rest == 0 || !self.column_groups().is_multiple_of(rest) {
            return 1;
        }
        let shares = self.column_groups() / rest;
        let fits = (shares - 1) * rest * self.rows <= self.columns * (vectors | 1);
        if fits { shares } else { 1 }
    }

    /// Vectors of rows staged at a time: the most that fit `storage` bytes, in equal parts.
    fn chunk(&self, shape: AttentionShape, pass: AttentionPass, storage: usize) -> Option<usize> {
        let vectors = shape.head_dim / 4;
        let least = if self.resident { vectors } else { 1 };
        let most = if self.resident { vectors } else { MOST_CHUNK };
        (least..=most.min(vectors))
            .rev()
            .filter(|chunk| vectors.is_multiple_of(*chunk))
            .find(|&chunk| self.bytes(shape, pass, chunk) <= storage)
    }

    pub(super) fn label(&self) -> String {
        let resident = if self.resident { ", rows resident" } else { "" };
        let Self { rows, columns, row_groups, size, .. } = self;
        format!("tiled {rows}x{columns} by {row_groups}x{}{resident}", size / row_groups)
    }
}

/// Workgroups of the full tile below which the half tile is taken. An NVIDIA H200 has 132 multiprocessors.
/// Microseconds there, full (in parts for keys of 96) and half: forward, heads of 64, 40 and 37 with 192
/// workgroups, of 32, 55 and 56 with 256, of 128, 59 and 62 with 128; with 128, keys and values of 32, 33
/// and 31, of 96, 95 and 90, with 256 188 and 331; what it costs is 1 µs at most (queries of 80, 51 and 53).
const fn few_groups(shape: AttentionShape, pass: AttentionPass) -> usize {
    match (pass, shape.head_dim) {
        (AttentionPass::Forward, ..=64) => 256,
        (_, ..=96) => 132,
        _ => 96,
    }
}

/// Most vectors of rows staged at a time: more costs workgroup memory, and so workgroups in flight.
const MOST_CHUNK: usize = 8;

/// The tiles that a pass may choose among on this device, in order of preference.
pub fn attention_tiles(
    caps: &Capabilities,
    shape: AttentionShape,
    pass: AttentionPass,
) -> Vec<AttentionTile> {
    let storage = caps.limits.max_compute_workgroup_storage_size as usize;
    let invocations = caps.limits.workgroup_invocations() as usize;
    TILES
        .into_iter()
        .filter(|t| t.size <= invocations && t.chunk(shape, pass, storage).is_some())
        .collect()
}

/// Tokens from which rows whose vectors do not divide among the column groups are better staged in
/// parts in the forward pass. On an NVIDIA H200, 8 heads, microseconds resident and in parts: of 80, 83
/// and 114 at 1,024 tokens, 307 and 263 at 2,048, 5,421 and 4,115 at 8,192; of 96, 91 and 124, 340 and
/// 294, 6,015 and 4,595; of 128, where they divide, 446 and 521 at 2,048.
const STAGED_FROM: usize = 2048;

/// Whether the forward pass prefers rows in parts to resident ones.
fn prefers_parts(shape: AttentionShape, pass: AttentionPass) -> bool {
    let (vectors, groups) = (shape.head_dim / 4, FULL_TILE.column_groups());
    let uneven = vectors > groups && !vectors.is_multiple_of(groups);
    pass == AttentionPass::Forward && uneven && shape.tokens >= STAGED_FROM
}

/// The preferred tile that fits; the half tile only where it makes workgroups that a GPU lacks.
pub(super) fn pick(
    caps: &Capabilities,
    shape: AttentionShape,
    pass: AttentionPass,
    owners: usize,
) -> Result<(AttentionTile, String)> {
    let tiles = attention_tiles(caps, shape, pass);
    let groups = |tile: &AttentionTile| shape.tokens.div_ceil(tile.rows) * owners;
    let short = shape.tokens > 0 && groups(&FULL_TILE) < few_groups(shape, pass);
    let in_parts = prefers_parts(shape, pass) && tiles.contains(&PARTS_TILE);
    let wanted = |tile: &&AttentionTile| {
        if in_parts { **tile == PARTS_TILE } else { **tile != HALF_TILE || short }
    };
    let half = tiles.iter().find(|tile| short && **tile == HALF_TILE);
    if let Some(tile) = half.or_else(|| tiles.iter().find(wanted)) {
        let memory =
            tile.chunk(shape, pass, caps.limits.max_compute_workgroup_storage_size as usize);
        let bytes = memory.map_or(0, |chunk| tile.bytes(shape, pass, chunk));
        let reason = if half.is_some() {
            format!("{} workgroups with the full tile are few for a large GPU", groups(&FULL_TILE))
        } else if in_parts {
            format!("long, and {} vectors do not divide among the columns", shape.head_dim / 4)
        } else {
            format!("the preferred tile that fits: {bytes} bytes of workgroup memory")
        };
        return Ok((*tile, reason));
    }
    let last = TILES[TILES.len() - 1];
    let invocations = caps.limits.workgroup_invocations() as usize;
    if invocations < last.size {
        let name = "maxComputeInvocationsPerWorkgroup";
        return Err(Error::limit(name, invocations as u64, last.size as u64, pass.kernel_name()));
    }
    let have = u64::from(caps.limits.max_compute_workgroup_storage_size);
    let need = last.bytes(shape, pass, 1) as u64;
    Err(Error::limit("maxComputeWorkgroupStorageSize", have, need, pass.kernel_name()))
}

/// The constants of a tile.
///
/// # Errors
/// `limit-exceeded` when it does not fit.
pub(super) fn tiled(
    caps: &Capabilities,
    shape: AttentionShape,
    pass: AttentionPass,
    tile: AttentionTile,
) -> Result<Composer> {
    let have = caps.limits.max_compute_workgroup_storage_size as usize;
    let [rows, columns, weights] = pass.kinds();
    let vectors = shape.head_dim / 4;
    let name = pass.kernel_name();
    let chunk = tile.chunk(shape, pass, have).ok_or_else(|| {
        let need = tile.bytes(shape, pass, 1) as u64;
        Error::limit("maxComputeWorkgroupStorageSize", have as u64, need, name)
    })?;
    let result_vectors = vectors.div_ceil(tile.column_groups());
    let shares = tile.shares(vectors);
    let (whole, rest) = match shares {
        1 => (result_vectors, 1),
        _ => (result_vectors - 1, tile.column_groups() / shares),
    };
    Ok(Composer::new(name, tile.size as u32)
        .size("BQ", tile.rows)
        .size("BK", tile.columns)
        .size("ROW_GROUPS", tile.row_groups)
        .size("CHUNK", chunk)
        .flag("RESIDENT", tile.resident)
        .size("ROW_KINDS", rows)
        .size("COLUMN_KINDS", columns)
        .size("WEIGHT_KINDS", weights)
        .unrolled("RQ", tile.rows / tile.row_groups)
        .unrolled("RQ4", tile.rows / tile.row_groups / 4)
        .unrolled("RK", tile.columns / tile.column_groups())
        .unrolled("RV", result_vectors)
        .unrolled("RW", whole)
        .size("SHARES", shares)
        .size("REST", rest)
        .size("INTERLEAVED", pass.interleaved())
        .flag("LAST_IS_LONGEST", pass != AttentionPass::KeyValue)
        .unrolled("ROW_LOADS", (tile.rows * chunk).div_ceil(tile.size))
        .unrolled("COLUMN_LOADS", (tile.columns * vectors).div_ceil(tile.size)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_rest_of_vectors_is_shared_where_it_divides_and_fits() {
        let shares = |tile: AttentionTile, head_dim: usize| tile.shares(head_dim / 4);
        for (head_dim, expected) in
            [(32, 2), (64, 1), (80, 4), (96, 2), (112, 1), (128, 1), (256, 1)]
        {
            assert_eq!(shares(FULL_TILE, head_dim), expected, "heads of {head_dim}");
            assert_eq!(shares(HALF_TILE, head_dim), expected, "heads of {head_dim}");
        }
        // 256 vectors of shares in a tile of 144.
        assert_eq!(shares(AttentionTile::new(32, 16, 8, 128), 32), 1);
    }
}
