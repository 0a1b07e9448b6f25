//! Attention's forward pass by matrices: its tiles, which one a shape gets, and the kernel.

use super::matrix::{SHARERS, quads, usable, with_matrices};
use super::matrix_parts::{Part, Product, Sheet, Tile, Transfer};
use super::operands::{Operands, common};
use crate::caps::{Capabilities, MatrixConfig};
use crate::error::{Error, Result};
use crate::format::Element;
use crate::kernels::compose::{Composer, Grid, Kernel};
use crate::kernels::shape::{AttentionPass, AttentionShape, AttentionTile};
use crate::kernels::spec::KernelSpec;

/// In order of preference (`docs/decisions/050-matrix-attention-forward.md`): the second is for little workgroup
/// memory.
const TILES: [AttentionTile; 2] = [AttentionTile::matrix(64, 32), AttentionTile::matrix(32, 16)];

/// Of the atomic that says whether results are multiplied, as it is counted.
const FLAG_BYTES: usize = 16;

/// What lies in workgroup memory: rows of queries, of keys and of values, weights, and sums.
struct Layout {
    queries: Tile,
    keys: Tile,
    values: Tile,
    weights: Tile,
    scores: Sheet,
}

impl Layout {
    fn new(caps: &Capabilities, shape: AttentionShape, tile: AttentionTile) -> Self {
        let lines = caps.matrix_lanes() as usize / SHARERS;
        let (panels, len) = (tile.rows / lines, shape.head_dim);
        let columns = Tile { name: "keys", panels: 1, lines: tile.columns, len };
        Self {
            queries: Tile { name: "queries", panels, lines, len },
            keys: columns,
            values: Tile { name: "values", ..columns },
            weights: Tile { name: "weights", panels, lines, len: tile.columns },
            scores: Sheet { name: "scores", panels, lines, len: tile.columns },
        }
    }

    fn bytes(&self) -> usize {
        let tiles = [self.queries, self.keys, self.values, self.weights];
        tiles.iter().map(Tile::bytes).sum::<usize>() + self.scores.bytes() + FLAG_BYTES
    }

    fn results(&self) -> Transfer {
        let (sheet, m, n) = (self.scores, self.queries.lines, self.queries.len);
        Transfer { name: "results", sheet, m, n, back: true }
    }

    fn parts(&self) -> [Part; 9] {
        let (m, columns, head) = (self.queries.lines, self.weights.len, self.queries.len);
        let multiply_keys = Product {
            name: "multiply_keys",
            left: self.queries,
            left_rows: true,
            right: self.keys,
            right_rows: false,
            m,
            n: columns,
            k: head,
        };
        let add_values = Product {
            name: "add_values",
            left: self.weights,
            left_rows: true,
            right: self.values,
            right_rows: true,
            m,
            n: head,
            k: columns,
        };
        let products = Transfer { name: "products", n: columns, back: false, ..self.results() };
        [
            Part::Tile(self.queries),
            Part::Tile(self.keys),
            Part::Tile(self.values),
            Part::Tile(self.weights),
            Part::Sheet(self.scores),
            Part::Product(multiply_keys),
            Part::Product(add_values),
            Part::Transfer(products),
            Part::Transfer(self.results()),
        ]
    }
}

/// Whether a tile can be made of matrices of this size, and fits the device.
fn fits(
    caps: &Capabilities,
    shape: AttentionShape,
    config: MatrixConfig,
    tile: AttentionTile,
) -> bool {
    let strip = caps.matrix_lanes() as usize / SHARERS;
    let loads = tile.columns * shape.head_dim / 4;
    tile.rows.is_multiple_of(strip)
        && strip.is_multiple_of(config.m as usize)
        && [config.n, config.k].iter().all(|side| tile.columns.is_multiple_of(*side as usize))
        && loads.is_multiple_of(tile.size)
        && tile.size <= caps.limits.workgroup_invocations() as usize
        && Layout::new(caps, shape, tile).bytes()
            <= caps.limits.max_compute_workgroup_storage_size as usize
}

/// The tiles that the forward pass may choose among on this device, by matrices.
pub fn matrix_forward_tiles(caps: &Capabilities, shape: AttentionShape) -> Vec<AttentionTile> {
    let Ok(config) = usable(caps, shape) else { return vec![] };
    TILES.into_iter().filter(|tile| fits(caps, shape, config, *tile)).collect()
}

/// Whether the forward pass is by matrices: what it reads and its output may then lie in f16.
pub fn attention_forward_halves(caps: &Capabilities, shape: AttentionShape) -> bool {
    pick(caps, shape).is_ok()
}

/// The tile for a shape, and why.
///
/// # Errors
/// Why there is none, in words: empty where nobody allows operands in f16.
pub(super) fn pick(
    caps: &Capabilities,
    shape: AttentionShape,
) -> std::result::Result<(AttentionTile, String), String> {
    usable(caps, shape)?;
    let tiles = matrix_forward_tiles(caps, shape);
    let Some(tile) = tiles.first() else {
        let have = caps.limits.max_compute_workgroup_storage_size;
        return Err(format!("no tile of matrices fits {have} bytes of workgroup memory"));
    };
    let bytes = Layout::new(caps, shape, *tile).bytes();
    Ok((*tile, format!("the preferred tile that fits: {bytes} bytes of workgroup memory")))
}

/// The kernel with a tile.
///
/// # Errors
/// `limit-exceeded` where the device has no matrices, or the tile does not fit.
pub(super) fn kernel(
    caps: &Capabilities,
    shape: AttentionShape,
    operands: Operands,
    given: Option<AttentionTile>,
    (tile, reason): (AttentionTile, String),
) -> Result<Kernel> {
    let pass = AttentionPass::Forward;
    let spec = operands.spec(shape, pass, given);
    let composer = composed(caps, spec, shape, tile)?;
    let composer = operands
        .dropout(composer, shape, pass)
        .module("lib/attention/kept_bits")
        .module("lib/attention/assigned")
        .module("05_attention_forward_matrix");
    let grid = Grid::RowsByX { rows: tile.rows, y: shape.heads as u32 };
    composer.finish(caps, &operands.bindings(shape, pass), grid, tile.matrix_label(), reason)
}

/// The constants and modules of a tile, without those of dropout.
fn composed(
    caps: &Capabilities,
    spec: KernelSpec,
    shape: AttentionShape,
    tile: AttentionTile,
) -> Result<Composer> {
    let name = AttentionPass::Forward.kernel_name();
    let config = usable(caps, shape).ok().filter(|config| fits(caps, shape, *config, tile));
    let config = config.ok_or_else(|| Error::limit("subgroupMatrixConfigs", 0, 1, name))?;
    let layout = Layout::new(caps, shape, tile);
    let [columns, loads] = [tile.columns, tile.columns * shape.head_dim / 4 / tile.size];
    let size = [config.m, config.n, config.k].map(|size| size as usize);
    let [_, strip] = layout.results().counts(size).map(|count| count * size[1]);
    let composer = common(Composer::new(spec, tile.size as u32), shape)
        .size("BQ", tile.rows)
        .size("ROWS", layout.queries.lines)
        .size("STRIP4", strip / 4)
        .size("BK", columns)
        .size("INTERLEAVED", AttentionPass::Forward.interleaved())
        .flag("LAST_IS_LONGEST", true)
        .flag("DROPPED", shape.dropout.is_some())
        .size("Q_STRIDE", shape.stride())
        .size("KV_STRIDE", shape.stride())
        .size("KEY_OFFSET", shape.key_offset())
        .size("VALUE_OFFSET", shape.value_offset());
    let counts = [
        ("SHARE", columns / SHARERS),
        ("SHARE4", columns / SHARERS / 4),
        ("STRIP", strip / SHARERS),
        ("STRIP_LOADS", strip / 4 / SHARERS),
        ("COLUMN_LOADS", loads),
        ("QUERY_LOADS", shape.head_dim / 4 / SHARERS),
        ("STRIPS", shape.head_dim / strip),
    ];
    let composer = composer.matrix_loops(caps, &counts);
    let element = |half| if half { Element::F16 } else { Element::F32 };
    let halves = shape.halves;
    let composer = with_matrices(caps, composer, config, &layout.parts());
    let rows = [("qkv", element(halves.qkv)), ("output", element(halves.output))];
    // What pairs of neighbours share.
    let pairs =
        if caps.emulated { "lib/attention/pair_emulated" } else { "lib/attention/pair_subgroup" };
    Ok(quads(composer.module(pairs), &rows)
        .module("lib/step")
        .module("lib/attention/forward_rows_matrix")
        .module("lib/attention/mask_rows"))
}

#[cfg(test)]
mod tests {
    use super::super::matrix::samples::{device, shape};
    use super::*;

    #[test]
    fn little_memory_gets_small_tiles() {
        for (kibibytes, head_dim, tokens, rows, columns) in [
            (48, 64, 4096, 64, 32),
            (48, 64, 512, 64, 32),
            (48, 64, 0, 64, 32),
            (48, 128, 4096, 64, 32),
            (40, 128, 4096, 32, 16),
            (32, 64, 4096, 64, 32),
            (24, 64, 4096, 32, 16),
            (16, 64, 4096, 32, 16),
        ] {
            let (tile, why) = pick(&device(kibibytes), shape(head_dim, tokens)).unwrap();
            assert_eq!([tile.rows, tile.columns], [rows, columns], "{kibibytes} KiB, {why}");
        }
    }

    #[test]
    fn what_matrices_cannot_do_has_a_reason() {
        let whole = device(48);
        let mut without = whole.clone();
        without.features.subgroup_matrix = false;
        for (caps, shape, why) in [
            (&whole, shape(72, 512), "heads of 72 are no multiple of 16 up to 128"),
            (&whole, shape(256, 512), "heads of 256 are no multiple of 16 up to 128"),
            (&without, shape(64, 512), "no subgroup matrices from f16 to f32"),
            (&device(16), shape(128, 512), "no tile of matrices fits 16384 bytes"),
            (&whole, AttentionShape { half: false, ..shape(64, 512) }, ""),
        ] {
            let refused = pick(caps, shape).unwrap_err();
            assert!(refused.starts_with(why) && refused.is_empty() == why.is_empty(), "{refused}");
        }
    }
}
