//! Tiles of the attention kernels: how much workgroup memory each takes, which one a shape gets.

use crate::caps::{Capabilities, GpuClass};
use crate::error::{Error, Result};
use crate::kernels::compose::{Composer, Spec};
use crate::kernels::shape::{AttentionPass, AttentionShape, AttentionTile};

pub(super) const FULL_TILE: AttentionTile = AttentionTile::resident(32, 32, 8, 128);
const HALF_TILE: AttentionTile = AttentionTile::resident(16, 32, 4, 64);
const PARTS_TILE: AttentionTile = AttentionTile::new(32, 32, 8, 128);
/// Tiles for small heads. Their rows are short, so that more of them fit workgroup memory. An invocation
/// then computes more scores, with fewer loads from workgroup memory for each.
const WIDE_TILE: AttentionTile = AttentionTile::resident(32, 64, 8, 128);
const SQUARE_TILE: AttentionTile = AttentionTile::resident(64, 64, 16, 128);
pub(super) const TALL_TILE: AttentionTile = AttentionTile::resident(64, 32, 16, 128);
/// Tiles for every head dimension, in order of preference as measured on an NVIDIA H200
/// (`docs/decisions/006-attention-tiles.md`). With heads of 64 and more, tiles of more rows or of more results per
/// invocation were slower at every length. Tiles of fewer were slower too, except for short batches: the half tile
/// makes twice as many workgroups of them. The last two tiles need little workgroup memory.
const TILES: [AttentionTile; 6] = [
    FULL_TILE,
    HALF_TILE,
    PARTS_TILE,
    AttentionTile::new(32, 16, 8, 128),
    AttentionTile::new(16, 8, 4, 32),
    AttentionTile::new(8, 4, 2, 8),
];

impl AttentionPass {
    /// Kinds of rows, of columns and of weights in workgroup memory.
    const fn kinds(self) -> [usize; 3] {
        match self {
            Self::Forward => [1, 1, 1],
            Self::Query => [2, 2, 1],
            Self::KeyValue => [2, 2, 2],
        }
    }

    /// Most workgroups of a dispatch that begins with the longest tiles of all owners. On an NVIDIA H200
    /// this order made kernels up to 39 % faster. It made a few kernels just below these limits 1 to 3 %
    /// slower, and larger ones up to 10 % slower (`docs/decisions/010-longest-tiles-first.md`).
    pub const fn interleaved(self) -> usize {
        match self {
            Self::Forward | Self::Query => 4096,
            Self::KeyValue => 1024,
        }
    }
}

impl AttentionTile {
    pub const fn new(rows: usize, columns: usize, row_groups: usize, size: usize) -> Self {
        Self { rows, columns, row_groups, size, resident: false, matrix: false }
    }

    pub const fn resident(rows: usize, columns: usize, row_groups: usize, size: usize) -> Self {
        Self { rows, columns, row_groups, size, resident: true, matrix: false }
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

    /// A block of random words is of four of 32 keys, eight apart. This many consecutive keys of an invocation are
    /// of one block. The first of a tile is a multiple of the tile's keys.
    const fn keys_per_block(&self, pass: AttentionPass) -> usize {
        let (apart, keys) = match pass {
            AttentionPass::Forward | AttentionPass::Query => {
                (self.column_groups(), self.columns / self.column_groups())
            }
            AttentionPass::KeyValue => (self.row_groups, self.rows / self.row_groups),
        };
        match apart {
            8 if keys.is_multiple_of(4) => 4,
            8 | 16 if keys.is_multiple_of(2) => 2,
            _ => 1,
        }
    }

    /// Each column group gets the same number of `vectors`. This many invocations share each vector of the remainder: 1
    /// where the remainder does not divide the groups, or where the shares do not fit the tile of columns.
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

/// Most vectors of rows staged at a time. More take workgroup memory, and fewer workgroups then run at once.
const MOST_CHUNK: usize = 8;

/// Largest head dimension of small heads.
pub(super) const SMALL_HEADS: usize = 32;

/// The tiles that only small heads have.
const fn small_tiles(pass: AttentionPass) -> &'static [AttentionTile] {
    match pass {
        AttentionPass::Forward => &[WIDE_TILE, SQUARE_TILE],
        AttentionPass::Query => &[WIDE_TILE],
        AttentionPass::KeyValue => &[TALL_TILE],
    }
}

/// The tiles that a pass may choose among on this device.
pub fn attention_tiles(
    caps: &Capabilities,
    shape: AttentionShape,
    pass: AttentionPass,
) -> Vec<AttentionTile> {
    let small = if shape.head_dim <= SMALL_HEADS { small_tiles(pass) } else { &[] };
    let storage = caps.limits.max_compute_workgroup_storage_size as usize;
    let invocations = caps.limits.workgroup_invocations() as usize;
    (TILES.iter().chain(small))
        .filter(|t| t.size <= invocations && t.chunk(shape, pass, storage).is_some())
        .copied()
        .collect()
}

/// Workgroups of a batch with this tile. Without a known length (`tokens` is 0) they count as unlimited.
const fn groups(tile: AttentionTile, tokens: usize, owners: usize) -> usize {
    match tokens {
        0 => usize::MAX,
        tokens => tokens.div_ceil(tile.rows) * owners,
    }
}

// Numbers of workgroups for a `GpuClass::LARGE`; `GpuClass::workgroups` scales them to other classes.

/// The forward pass takes the square tile if that gives more workgroups than this, else the wide tile.
const SQUARE_GROUPS: usize = 132;
/// The gradient of queries takes the wide tile if that gives at most this many workgroups.
const WIDE_GROUPS: usize = 264;
/// The gradients of keys and values take the tall tile if that gives at least this many workgroups.
const TALL_GROUPS: usize = 192;

/// The tile for heads of up to [`SMALL_HEADS`] elements; `None` where a tile for every head dimension is
/// faster. Microseconds on an NVIDIA H200 with 8 heads of 32:
///
/// | pass | tokens | full | half | wide | square | tall |
/// |---|---|---|---|---|---|---|
/// | forward | 512 | 26 | 26 | 22 | 28 | |
/// | forward | 1,024 | 55 | 56 | 42 | 51 | |
/// | forward | 1,536 | 94 | 89 | 92 | 74 | |
/// | forward | 2,048 | 137 | 135 | 146 | 100 | |
/// | queries | 512 | 27 | 25 | 25 | | |
/// | queries | 1,024 | 62 | 60 | 51 | | |
/// | queries | 1,536 | 103 | 98 | 113 | | |
/// | queries | 2,048 | 147 | 164 | 181 | | |
/// | keys and values | 1,024 | 60 | | | | 94 |
/// | keys and values | 1,536 | 140 | | | | 139 |
/// | keys and values | 2,048 | 222 | | | | 185 |
/// | keys and values | 8,192 | 3,722 | | | | 2,866 |
fn for_small_heads(
    class: GpuClass,
    shape: AttentionShape,
    pass: AttentionPass,
    (tokens, owners): (usize, usize),
) -> Option<AttentionTile> {
    let groups = |tile| groups(tile, tokens, owners);
    match pass {
        _ if shape.head_dim > SMALL_HEADS => None,
        AttentionPass::Forward if groups(SQUARE_TILE) <= class.workgroups(SQUARE_GROUPS) => {
            Some(WIDE_TILE)
        }
        AttentionPass::Forward => Some(SQUARE_TILE),
        AttentionPass::Query => {
            let middling = few_groups(class, shape, pass)..=class.workgroups(WIDE_GROUPS);
            middling.contains(&groups(WIDE_TILE)).then_some(WIDE_TILE)
        }
        AttentionPass::KeyValue => {
            (groups(TALL_TILE) >= class.workgroups(TALL_GROUPS)).then_some(TALL_TILE)
        }
    }
}

/// The half tile is taken where the full tile would give fewer workgroups than this. Microseconds on an NVIDIA H200:
///
/// | pass | head | workgroups | full | half |
/// |---|---|---|---|---|
/// | forward | 64 | 192 | 40 | 37 |
/// | forward | 32 | 256 | 55 | 56 |
/// | forward | 128 | 128 | 59 | 62 |
/// | queries | 80 | few | 51 | 53 |
/// | keys and values | 32 | 128 | 33 | 31 |
/// | keys and values | 96 | 128 | 95 (in parts) | 90 |
/// | keys and values | 96 | 256 | 188 (in parts) | 331 |
const fn few_groups(class: GpuClass, shape: AttentionShape, pass: AttentionPass) -> usize {
    class.workgroups(match (pass, shape.head_dim) {
        (AttentionPass::Forward, ..=64) => 256,
        (_, ..=96) => 132,
        _ => 96,
    })
}

/// From this many tokens on, the forward pass stages rows in parts, if their vectors do not divide evenly
/// among the column groups. Microseconds on an NVIDIA H200 with 8 heads:
///
/// | head | tokens | resident | in parts |
/// |---|---|---|---|
/// | 80 | 1,024 | 83 | 114 |
/// | 80 | 2,048 | 307 | 263 |
/// | 80 | 8,192 | 5,421 | 4,115 |
/// | 96 | 1,024 | 91 | 124 |
/// | 96 | 2,048 | 340 | 294 |
/// | 96 | 8,192 | 6,015 | 4,595 |
/// | 128 (divides evenly) | 2,048 | 446 | 521 |
const STAGED_FROM: usize = 2048;

/// Whether the forward pass prefers rows in parts to resident ones.
fn prefers_parts(shape: AttentionShape, tokens: usize, pass: AttentionPass) -> bool {
    let (vectors, groups) = (shape.head_dim / 4, FULL_TILE.column_groups());
    let uneven = vectors > groups && !vectors.is_multiple_of(groups);
    pass == AttentionPass::Forward && uneven && tokens >= STAGED_FROM
}

/// Tiles in order of preference for a shape; those for special cases have a reason.
fn preferred(
    class: GpuClass,
    shape: AttentionShape,
    pass: AttentionPass,
    (tokens, owners): (usize, usize),
) -> Vec<(AttentionTile, Option<String>)> {
    let full = groups(FULL_TILE, tokens, owners);
    let mut wanted = vec![];
    if let Some(tile) = for_small_heads(class, shape, pass, (tokens, owners)) {
        let count = groups(tile, tokens, owners);
        let many =
            if count == usize::MAX { String::new() } else { format!(", {count} workgroups") };
        wanted.push((tile, Some(format!("heads of {}{many}", shape.head_dim))));
    }
    if full < few_groups(class, shape, pass) {
        let few = format!("{full} workgroups with the full tile are few for {}", class.called);
        wanted.push((HALF_TILE, Some(few)));
    }
    if prefers_parts(shape, tokens, pass) {
        let uneven = shape.head_dim / 4;
        let why = format!("long, and {uneven} vectors do not divide among the columns");
        wanted.push((PARTS_TILE, Some(why)));
    }
    wanted.extend(TILES.iter().filter(|tile| **tile != HALF_TILE).map(|tile| (*tile, None)));
    wanted
}

/// The preferred tile that fits, for batches of up to `tokens` tokens, whose rows have `owners` owners.
pub(super) fn pick(
    caps: &Capabilities,
    shape: AttentionShape,
    pass: AttentionPass,
    (tokens, owners): (usize, usize),
) -> Result<(AttentionTile, String)> {
    let have = caps.limits.max_compute_workgroup_storage_size;
    let tiles = attention_tiles(caps, shape, pass);
    if let Some((tile, reason)) = preferred(caps.class(), shape, pass, (tokens, owners))
        .into_iter()
        .find(|(tile, _)| tiles.contains(tile))
    {
        let fits = || {
            let chunk = tile.chunk(shape, pass, have as usize);
            let bytes = chunk.map_or(0, |chunk| tile.bytes(shape, pass, chunk));
            format!("the preferred tile that fits: {bytes} bytes of workgroup memory")
        };
        return Ok((tile, reason.unwrap_or_else(fits)));
    }
    let last = TILES[TILES.len() - 1];
    let invocations = caps.limits.workgroup_invocations() as usize;
    if invocations < last.size {
        let name = "maxComputeInvocationsPerWorkgroup";
        return Err(Error::limit(name, invocations as u64, last.size as u64, pass.kernel_name()));
    }
    let need = last.bytes(shape, pass, 1) as u64;
    let name = "maxComputeWorkgroupStorageSize";
    Err(Error::limit(name, u64::from(have), need, pass.kernel_name()))
}

/// The constants of a tile.
///
/// # Errors
/// `limit-exceeded` when it does not fit.
pub(super) fn tiled(
    caps: &Capabilities,
    spec: impl Spec,
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
    Ok(Composer::new(spec, tile.size as u32)
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
        .size("KEYS_PER_BLOCK", tile.keys_per_block(pass))
        .unrolled("ROW_LOADS", (tile.rows * chunk).div_ceil(tile.size))
        .unrolled("COLUMN_LOADS", (tile.columns * vectors).div_ceil(tile.size)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn small_heads_have_tiles_of_their_own() {
        let mut caps = Capabilities::floor(crate::caps::Target::Browser);
        (caps.adapter.vendor, caps.adapter.architecture) = ("nvidia".into(), String::new());
        caps.limits.max_compute_workgroup_storage_size = 48 << 10;
        let tile = |head_dim, tokens, pass| {
            let shape = AttentionShape { heads: 8, kv_heads: 8, head_dim };
            pick(&caps, shape, pass, (tokens, 8)).unwrap().0
        };
        use AttentionPass::{Forward, KeyValue, Query};
        for (tokens, expected) in [
            (128, [WIDE_TILE, HALF_TILE, HALF_TILE]),
            (1024, [WIDE_TILE, WIDE_TILE, FULL_TILE]),
            (2048, [SQUARE_TILE, FULL_TILE, TALL_TILE]),
            (0, [SQUARE_TILE, FULL_TILE, TALL_TILE]),
        ] {
            let picked = [Forward, Query, KeyValue].map(|pass| tile(32, tokens, pass));
            assert_eq!(picked, expected, "{tokens} tokens");
        }
        let large = [Forward, Query, KeyValue].map(|pass| tile(64, 2048, pass));
        assert_eq!(large, [FULL_TILE; 3]);
        // Where they do not fit, the tiles that every head dimension has.
        for (kibibytes, expected) in [(32, [FULL_TILE; 3]), (16, [FULL_TILE, PARTS_TILE, TILES[3]])]
        {
            let mut caps = caps.clone();
            caps.limits.max_compute_workgroup_storage_size = kibibytes << 10;
            let shape = AttentionShape { heads: 8, kv_heads: 8, head_dim: 32 };
            let picked = [Forward, Query, KeyValue]
                .map(|pass| pick(&caps, shape, pass, (2048, 8)).unwrap().0);
            assert_eq!(picked, expected, "{kibibytes} KiB");
        }
    }

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
