//! Attention's forward pass with logsumexp, over the fused rows of a batch or over a cache: by matrices that a subgroup
//! holds where a device has them and operands may be in f16, else by tiles or by rows.

use super::matrix::{SHARERS, usable};
use super::operands::{AttentionOperands, attention_kernel};
use crate::caps::{Capabilities, MatrixConfig};
use crate::error::{Error, Result};
use crate::kernels::compose::{Composer, Grid, Kernel, MATRIX_USERS, Spec};
use crate::kernels::shape::{
    AttentionPass, AttentionShape, AttentionTile, BackwardRows, BatchAttention, CacheAttention,
};
use crate::kernels::spec::GIVEN_TILE;

/// Attention of a batch's rows. In f16 rows have two elements to a word: only where the kernel multiplies by matrices.
/// Bindings: query, keys (both qkv), documents, output, lse, step, and with dropout range.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct AttentionForward {
    pub batch: BatchAttention,
    pub qkv_f16: bool,
    pub output_f16: bool,
    pub tile: Option<AttentionTile>,
}

impl Spec for AttentionForward {
    fn name(&self) -> &'static str {
        AttentionPass::Forward.kernel_name()
    }

    fn kernel(&self, caps: &Capabilities) -> Result<Kernel> {
        let Self { batch, tile, .. } = *self;
        let picked = match tile {
            Some(tile) if tile.matrix => Ok((tile, GIVEN_TILE.into())),
            Some(_) => Err(String::new()),
            None if batch.rounds => pick(caps, batch.shape, None),
            None => Err(String::new()),
        };
        let operands = AttentionOperands::of_batch(batch, BackwardRows::default());
        let refused = match picked {
            Ok(picked) => {
                let halves = [self.qkv_f16, self.output_f16];
                return by_matrices(caps, *self, operands, halves, picked);
            }
            Err(why) => why,
        };
        Ok(attention_kernel(caps, *self, AttentionPass::Forward, operands, tile)?
            .not_on_matrices(&refused))
    }
}

/// Attention of the rows of a chunk of a prompt to a cache in f32, which has their own keys and values too. `tokens` is
/// the most rows of a chunk. Where it `rounds`, it may multiply in f16. Only then may the output be in f16. Bindings:
/// query, keys (the cache), documents, output, lse, step.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct AttentionForwardCached {
    pub attention: CacheAttention,
    pub tokens: usize,
    pub rounds: bool,
    pub output_f16: bool,
    pub tile: Option<AttentionTile>,
}

impl Spec for AttentionForwardCached {
    fn name(&self) -> &'static str {
        AttentionPass::Forward.kernel_name()
    }

    fn kernel(&self, caps: &Capabilities) -> Result<Kernel> {
        let operands = AttentionOperands::Cache(self.attention, self.tokens);
        let picked = match self.tile {
            Some(tile) if tile.matrix => Ok((tile, GIVEN_TILE.into())),
            None if self.rounds => pick(caps, self.attention.shape, Some(self.tokens)),
            _ => Err(String::new()),
        };
        match picked {
            Ok(picked) => by_matrices(caps, *self, operands, [false, self.output_f16], picked),
            Err(why) => {
                let pass = AttentionPass::Forward;
                Ok(attention_kernel(caps, *self, pass, operands, self.tile)?.not_on_matrices(&why))
            }
        }
    }

    fn flops_per_cached_key(&self) -> f64 {
        4.0 * self.attention.shape.width() as f64
    }
}

/// In order of preference (`docs/decisions/050-matrix-attention-forward.md`): the second is for little workgroup
/// memory.
const TILES: [AttentionTile; 2] = [AttentionTile::matrix(64, 32), AttentionTile::matrix(32, 16)];
/// Preferred for a prompt where the first of these would leave units of the GPU without a workgroup
/// (`docs/decisions/079-prompts-of-small-models.md`).
const FEW_QUERIES: AttentionTile = AttentionTile::matrix_in_parts(32, 64, 2);

/// Bytes of the atomic that says whether results are multiplied, rounded up.
const FLAG_BYTES: usize = 16;

/// Cells of padding after each line of a tile. Without them the loads of a matrix meet in the same banks.
const PAD: usize = 8;
/// Floats of padding after each line of scores. With them neighbours' vectors of four begin in different banks.
const SCORES_PAD: usize = 4;

/// What workgroup memory has: panels of a subgroup's rows, of their weights and of their scores, and the tile's keys
/// and values.
#[derive(Clone, Copy)]
struct TileLayout {
    /// Panels of queries.
    panels: usize,
    /// Parts of the tile's keys: so many panels of weights and scores for each of queries.
    parts: usize,
    /// Rows of a panel.
    rows: usize,
    /// Keys of a part.
    columns: usize,
    head_dim: usize,
}

impl TileLayout {
    fn new(caps: &Capabilities, shape: AttentionShape, tile: AttentionTile) -> Self {
        let rows = caps.matrix_lanes() as usize / SHARERS;
        let (parts, head_dim) = (tile.key_parts(), shape.head_dim);
        let columns = tile.columns / parts;
        Self { panels: tile.rows / rows, parts, rows, columns, head_dim }
    }

    const fn bytes(&self) -> usize {
        let Self { panels, parts, rows, columns, head_dim } = *self;
        // The last line needs no pad.
        let queries = rows * (head_dim + PAD) - PAD;
        let column_tile = columns * (head_dim + PAD) - PAD;
        let weights = rows * (columns + PAD) - PAD;
        let scores = rows * (columns + SCORES_PAD);
        let halves = panels * (queries + parts * weights) + 2 * parts * column_tile;
        2 * halves + 4 * panels * parts * scores + FLAG_BYTES
    }

    /// Matrices across that fit the place of a panel's scores at a time, in equal strips.
    fn strip_matrices(&self, n: usize) -> usize {
        let (all, most) = (self.head_dim / n, self.columns / n);
        (1..=most.min(all)).rev().find(|count| all.is_multiple_of(*count)).unwrap_or(1)
    }
}

/// Whether a tile can be made of matrices of this size, and fits the device.
fn fits(
    caps: &Capabilities,
    shape: AttentionShape,
    config: MatrixConfig,
    tile: AttentionTile,
) -> bool {
    let layout = TileLayout::new(caps, shape, tile);
    let strip = layout.rows;
    let vectors = shape.head_dim / 4;
    let stored = layout.strip_matrices(config.n as usize) * config.n as usize / 4;
    let loads = [tile.columns * vectors, tile.rows * vectors, tile.rows * stored];
    tile.rows.is_multiple_of(strip)
        && strip.is_multiple_of(config.m as usize)
        && [config.n, config.k].iter().all(|side| layout.columns.is_multiple_of(*side as usize))
        && loads.iter().all(|loads| loads.is_multiple_of(tile.size))
        && tile.size <= caps.limits.workgroup_invocations() as usize
        && layout.bytes() <= caps.limits.max_compute_workgroup_storage_size as usize
}

/// The tiles that the forward pass may choose among on this device, by matrices.
pub fn matrix_forward_tiles(caps: &Capabilities, shape: AttentionShape) -> Vec<AttentionTile> {
    let Ok(config) = usable(caps, shape) else { return vec![] };
    let tiles = TILES.into_iter().chain([FEW_QUERIES]);
    tiles.filter(|tile| fits(caps, shape, config, *tile)).collect()
}

/// Whether a forward pass whose operands may be rounded is by matrices. What it reads and its output may then be in
/// f16.
pub fn attention_forward_f16(caps: &Capabilities, shape: AttentionShape) -> bool {
    pick(caps, shape, None).is_ok()
}

/// The tile for a shape, and why. `rows`: the most rows of a prompt's chunk.
///
/// # Errors
/// Why there is none, in words.
fn pick(
    caps: &Capabilities,
    shape: AttentionShape,
    rows: Option<usize>,
) -> std::result::Result<(AttentionTile, String), String> {
    usable(caps, shape)?;
    let tiles = matrix_forward_tiles(caps, shape);
    let groups = |rows: usize| rows.div_ceil(TILES[0].rows) * shape.heads;
    let (few, class) = (rows.map_or(usize::MAX, groups), caps.class());
    if few < class.units && tiles.contains(&FEW_QUERIES) {
        let called = class.called;
        return Ok((FEW_QUERIES, format!("{few} workgroups with 64 rows are few for {called}")));
    }
    let Some(tile) = tiles.first() else {
        let have = caps.limits.max_compute_workgroup_storage_size;
        return Err(format!("no tile of matrices fits {have} bytes of workgroup memory"));
    };
    let bytes = TileLayout::new(caps, shape, *tile).bytes();
    Ok((*tile, format!("the preferred tile that fits: {bytes} bytes of workgroup memory")))
}

/// The kernel with a tile of matrices. Queries, keys and values, and the output, may be in f16.
///
/// # Errors
/// `limit-exceeded` where the device has no matrices, or the tile does not fit.
fn by_matrices(
    caps: &Capabilities,
    spec: impl Spec,
    operands: AttentionOperands,
    halves: [bool; 2],
    (tile, reason): (AttentionTile, String),
) -> Result<Kernel> {
    let (pass, shape) = (AttentionPass::Forward, operands.shape());
    let composer = operands.place(Composer::new(spec, tile.size as u32), pass);
    let composer = with_tile(caps, composer, shape, spec.name(), (halves, tile))?;
    let composer = operands.dropout(composer).module("05_attention_forward_matrix");
    let grid = Grid::RowsByX { rows: tile.rows, y: shape.heads as u32 };
    composer.finish(caps, &operands.bindings(pass), grid, tile.matrix_label(), reason)
}

/// Adds the constants of a tile.
fn with_tile(
    caps: &Capabilities,
    composer: Composer,
    shape: AttentionShape,
    name: &str,
    ([qkv, output], tile): ([bool; 2], AttentionTile),
) -> Result<Composer> {
    let config = usable(caps, shape).ok().filter(|config| fits(caps, shape, *config, tile));
    let config = config.ok_or_else(|| Error::limit("subgroupMatrixConfigs", 0, 1, name))?;
    let layout = TileLayout::new(caps, shape, tile);
    let TileLayout { parts, rows, columns, head_dim, .. } = layout;
    let [m, n, k] = [config.m, config.n, config.k].map(|size| size as usize);
    let strip_matrices = layout.strip_matrices(n);
    let strip = strip_matrices * n;
    let composer = composer
        .size("BQ", tile.rows)
        .size("ROWS", rows)
        .size("HEAD_PITCH", head_dim + PAD)
        .size("WEIGHTS_PITCH", columns + PAD)
        .size("SCORES_PITCH", columns + SCORES_PAD)
        .size("STRIP4", strip / 4)
        .size("BK", tile.columns)
        .unrolled("KEY_PARTS", parts)
        .when("KEYS_APART", parts > 1)
        .size("INTERLEAVED", AttentionPass::Forward.interleaved())
        .flag("LAST_IS_LONGEST", true)
        .when("F16", qkv || output)
        .when("QKV_F16", qkv)
        .when("OUTPUT_F16", output)
        .one_of(&MATRIX_USERS, "OF_FORWARD");
    let counts = [
        ("ROW_MATRICES", rows / m),
        ("TILE_MATRICES", columns / n),
        ("HEAD_MATRICES", head_dim / n),
        ("STRIP_MATRICES", strip_matrices),
        ("DEPTH", head_dim / k),
        ("STEPS", columns / k),
        ("SHARE", columns / SHARERS),
        ("SHARE4", columns / SHARERS / 4),
        ("STRIP", strip / SHARERS),
        ("STRIP_LOADS", tile.rows * strip / 4 / tile.size),
        ("COLUMN_LOADS", tile.columns * head_dim / 4 / tile.size),
        ("QUERY_LOADS", tile.rows * head_dim / 4 / tile.size),
        ("STRIPS", head_dim / strip),
    ];
    Ok(composer.matrix_loops(caps, &counts).matrix(caps, config))
}

#[cfg(test)]
mod tests {
    use super::super::matrix::samples::{device, shape};
    use super::*;

    #[test]
    fn little_memory_gets_small_tiles() {
        for (kibibytes, head_dim, rows, columns) in [
            (48, 64, 64, 32),
            (48, 128, 64, 32),
            (40, 128, 32, 16),
            (32, 64, 64, 32),
            (24, 64, 32, 16),
            (16, 64, 32, 16),
        ] {
            let (tile, why) = pick(&device(kibibytes), shape(head_dim), None).unwrap();
            assert_eq!([tile.rows, tile.columns], [rows, columns], "{kibibytes} KiB, {why}");
        }
    }

    #[test]
    fn few_queries_of_a_prompt_have_keys_in_parts() {
        let caps = device(48);
        let parts = |caps: &Capabilities, shape: AttentionShape, rows: Option<usize>| {
            pick(caps, shape, rows).unwrap().0.key_parts()
        };
        let small = AttentionShape { heads: 9, kv_heads: 3, head_dim: 64 };
        // 72 workgroups, then 144; those of a batch are not counted.
        assert_eq!([512, 1024].map(|rows| parts(&caps, small, Some(rows))), [2, 1]);
        assert_eq!(parts(&caps, small, None), 1);
        // Where it does not fit: wide heads, and little memory.
        assert_eq!(parts(&caps, shape(128), Some(64)), 1);
        assert_eq!(parts(&device(32), small, Some(512)), 1);
    }

    #[test]
    fn what_matrices_cannot_do_has_a_reason() {
        let whole = device(48);
        let mut without = whole.clone();
        without.features.subgroup_matrix = false;
        for (caps, shape, why) in [
            (&whole, shape(72), "heads of 72 are no multiple of 16 up to 128"),
            (&whole, shape(256), "heads of 256 are no multiple of 16 up to 128"),
            (&without, shape(64), "no subgroup matrices from f16 to f32"),
            (&device(16), shape(128), "no tile of matrices fits 16384 bytes"),
        ] {
            let refused = pick(caps, shape, None).unwrap_err();
            assert!(refused.starts_with(why), "{refused}");
        }
    }
}
