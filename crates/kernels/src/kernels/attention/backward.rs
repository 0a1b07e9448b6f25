//! The gradients of attention over the fused rows of a batch, each side by its own kernel: by matrices that a subgroup
//! holds where a device has them and operands may be in f16, else by tiles or by rows.
//! `shaders/lib/attention/backward_matrix.wgsl` says where matrices keep what.

use super::matrix::usable;
use super::operands::{
    AttentionOperands, attention_kernel, common, fused_rows, key_value_constants,
};
use super::tile::{FULL_TILE, TALL_TILE, attention_tiles};
use crate::caps::{Capabilities, MatrixConfig};
use crate::error::{Error, Result};
use crate::kernels::compose::{Composer, Grid, Kernel, MATRIX_USERS, Spec};
use crate::kernels::shape::{
    AttentionPass, AttentionShape, AttentionTile, BackwardRows, BatchAttention, KeyValueOwner,
};
use crate::kernels::spec::{GIVEN_TILE, KernelSpec};

/// The gradient of queries. Bindings: qkv, d_output, lse, delta, documents, gradient (d_qkv), step, and with dropout
/// range, of gradients that are rotated back table.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct AttentionBackwardQuery {
    pub batch: BatchAttention,
    pub rows: BackwardRows,
    pub tile: Option<AttentionTile>,
}

impl Spec for AttentionBackwardQuery {
    fn name(&self) -> &'static str {
        AttentionPass::Query.kernel_name()
    }

    fn kernel(&self, caps: &Capabilities) -> Result<Kernel> {
        let Self { batch, rows, tile } = *self;
        backward(
            caps,
            (*self).into(),
            AttentionPass::Query,
            AttentionOperands::of_batch(batch, rows),
            tile,
        )
    }
}

/// The gradients of keys and values. Document ends follow `ends` elements after the starts. Bindings as of
/// [`AttentionBackwardQuery`]; by `owner` the gradient is that of a group, or parts.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct AttentionBackwardKeyValue {
    pub batch: BatchAttention,
    pub rows: BackwardRows,
    pub owner: KeyValueOwner,
    pub ends: usize,
    pub tile: Option<AttentionTile>,
}

impl Spec for AttentionBackwardKeyValue {
    fn name(&self) -> &'static str {
        AttentionPass::KeyValue.kernel_name()
    }

    fn kernel(&self, caps: &Capabilities) -> Result<Kernel> {
        let Self { batch, rows, owner, ends, tile } = *self;
        let operands = AttentionOperands::Batch { batch, rows, owner, ends };
        backward(caps, (*self).into(), AttentionPass::KeyValue, operands, tile)
    }
}

/// Workgroups that keep a [`GpuClass::LARGE`](crate::caps::GpuClass) busy: fewer, and each query head gets its own.
pub(super) const BUSY_GROUPS: usize = 256;

/// Who owns gradients of keys and values. Where long batches of small heads have tiles of 64 keys, more
/// of these are few.
pub fn key_value_owner(caps: &Capabilities, batch: BatchAttention) -> KeyValueOwner {
    let (shape, pass) = (batch.shape, AttentionPass::KeyValue);
    let rows = match pick_for(caps, batch, pass) {
        Ok((tile, _)) => tile.rows,
        Err(_) if attention_tiles(caps, shape, pass).contains(&TALL_TILE) => TALL_TILE.rows,
        Err(_) => FULL_TILE.rows,
    };
    let busy = caps.class().workgroups(BUSY_GROUPS);
    let few = shape.kv_heads * batch.tokens.div_ceil(rows) < busy;
    if shape.heads > shape.kv_heads && few { KeyValueOwner::Head } else { KeyValueOwner::Group }
}

/// A backward kernel: on matrices where the device has them and operands may be in f16.
fn backward(
    caps: &Capabilities,
    spec: KernelSpec,
    pass: AttentionPass,
    operands: AttentionOperands,
    given: Option<AttentionTile>,
) -> Result<Kernel> {
    let AttentionOperands::Batch { batch, .. } = operands else {
        return Err(Error::internal("only batches have gradients here"));
    };
    let picked = match given {
        Some(tile) if tile.matrix => Ok((tile, GIVEN_TILE.into())),
        Some(_) => Err(String::new()),
        None => pick_for(caps, batch, pass),
    };
    let refused = match picked {
        Ok(picked) => return matrix_kernel(caps, spec, pass, operands, picked),
        Err(why) => why,
    };
    Ok(attention_kernel(caps, spec, pass, operands, given)?.not_on_matrices(&refused))
}

/// The tile of matrices of a batch's pass.
///
/// # Errors
/// As [`pick`]; empty where operands may not be rounded to f16.
fn pick_for(
    caps: &Capabilities,
    batch: BatchAttention,
    pass: AttentionPass,
) -> std::result::Result<(AttentionTile, String), String> {
    if batch.rounds { pick(caps, batch.shape, pass) } else { Err(String::new()) }
}

/// Cells of padding after each line of columns and of weights. Without them the loads of a matrix meet in the same
/// banks.
const PAD: usize = 8;
/// Floats of padding after each row of scores. With them four rows of eight neighbours are in different banks.
const SCORE_PAD: usize = 8;
/// Keys of a block of random words, and the least columns or keys of a tile.
const BLOCK: usize = 32;
/// Probabilities, and score gradients, are multiplied by two to this on their way to f16.
const WEIGHT_BITS: i32 = 6;

const TILES: [AttentionTile; 2] = [AttentionTile::pairs(32, 32), AttentionTile::pairs(64, 32)];

/// The columns of larger heads take most of the workgroup memory, so more rows share them.
const ROOMY_HEAD: usize = 64;
/// Rows of a pair of subgroups. More would share the loads of a column's matrices, but leave fewer subgroups to wait
/// for memory and barriers (`docs/decisions/051-matrix-attention-backward.md`).
const STRIP: usize = 16;

/// Invocations of a subgroup for which the tiles are made.
const LANES: usize = 32;

impl AttentionTile {
    /// Strips of rows, each of two subgroups.
    const fn pairs(rows: usize, columns: usize) -> Self {
        let row_groups = rows / STRIP;
        let size = row_groups * 2 * LANES;
        Self { rows, columns, row_groups, size, resident: false, matrix: true }
    }
}

/// Kinds of weights: score gradients, and of keys and values probabilities too.
const fn kinds(pass: AttentionPass) -> usize {
    match pass {
        AttentionPass::KeyValue => 2,
        AttentionPass::Forward | AttentionPass::Query => 1,
    }
}

fn bytes(shape: AttentionShape, pass: AttentionPass, tile: AttentionTile) -> usize {
    let columns = 2 * tile.columns * (shape.head_dim + PAD) * 2;
    let scores = 2 * tile.rows * (tile.columns + SCORE_PAD) * 4;
    columns + scores + kinds(pass) * tile.rows * (tile.columns + PAD) * 2
}

fn fits(
    caps: &Capabilities,
    config: MatrixConfig,
    shape: AttentionShape,
    pass: AttentionPass,
    tile: AttentionTile,
) -> bool {
    let [m, n, k] = [config.m, config.n, config.k].map(|size| size as usize);
    // A subgroup computes half of a head of the queries' gradients.
    let across = shape.head_dim * kinds(pass) / 2;
    let loads = tile.columns * shape.head_dim / 4;
    let whole = [
        (STRIP, m),
        (tile.columns, n),
        (tile.columns, k),
        (shape.head_dim, k),
        (across, n),
        (loads, tile.size),
        (m * n, LANES),
        (tile.rows.min(tile.columns), BLOCK),
    ];
    let limits = &caps.limits;
    tile.matrix
        && caps.matrix_lanes() as usize == LANES
        && whole.iter().all(|(size, unit)| size.is_multiple_of(*unit))
        && tile.size <= limits.workgroup_invocations() as usize
        && bytes(shape, pass, tile) <= limits.max_compute_workgroup_storage_size as usize
}

/// The tiles of matrices that a backward pass may choose among on this device; none where it has no matrices.
pub fn attention_matrix_tiles(
    caps: &Capabilities,
    shape: AttentionShape,
    pass: AttentionPass,
) -> Vec<AttentionTile> {
    let Ok(config) = usable(caps, shape) else { return vec![] };
    let fits = |tile: &AttentionTile| fits(caps, config, shape, pass, *tile);
    TILES.into_iter().filter(fits).collect()
}

/// The tile of a backward pass.
///
/// # Errors
/// Why it is not on matrices, in words. Both passes are, or none.
fn pick(
    caps: &Capabilities,
    shape: AttentionShape,
    pass: AttentionPass,
) -> std::result::Result<(AttentionTile, String), String> {
    let halves = 2 * usable(caps, shape)?.n as usize;
    if !shape.head_dim.is_multiple_of(halves) {
        let head = shape.head_dim;
        return Err(format!(
            "heads of {head} are no multiple of {halves}: two subgroups share one"
        ));
    }
    let of = |pass| attention_matrix_tiles(caps, shape, pass);
    if [AttentionPass::Query, AttentionPass::KeyValue].into_iter().any(|pass| of(pass).is_empty()) {
        let have = caps.limits.max_compute_workgroup_storage_size;
        return Err(format!("no tile of matrices fits {have} bytes of workgroup memory"));
    }
    let mut tiles = of(pass);
    tiles.sort_by_key(|tile| shape.head_dim > ROOMY_HEAD && tile.rows == TILES[0].rows);
    let need = bytes(shape, pass, tiles[0]);
    Ok((tiles[0], format!("the preferred tile that fits: {need} bytes of workgroup memory")))
}

/// Whether both backward passes are on matrices where operands may be rounded. The gradients that they read and write
/// may then be in f16.
pub fn attention_backward_f16(caps: &Capabilities, shape: AttentionShape) -> bool {
    pick(caps, shape, AttentionPass::Query).is_ok()
}

/// The kernel of a backward pass on matrices, with a tile and the reason for it.
///
/// # Errors
/// `limit-exceeded` when the tile does not fit.
fn matrix_kernel(
    caps: &Capabilities,
    spec: KernelSpec,
    pass: AttentionPass,
    operands: AttentionOperands,
    (tile, reason): (AttentionTile, String),
) -> Result<Kernel> {
    let AttentionOperands::Batch { batch, rows, owner, ends } = operands else {
        return Err(Error::internal("only batches have gradients here"));
    };
    let BatchAttention { shape, scores, window, .. } = batch;
    let config = usable(caps, shape).ok().filter(|config| fits(caps, *config, shape, pass, tile));
    let config = config.ok_or_else(|| {
        let have = u64::from(caps.limits.max_compute_workgroup_storage_size);
        let need = bytes(shape, pass, tile) as u64;
        Error::limit("maxComputeWorkgroupStorageSize", have, need, spec.name())
    })?;
    let composer =
        constants(caps, Composer::new(spec, tile.size as u32), shape, pass, tile, config);
    let composer = common(composer, shape, scores, window);
    let d_qkv = rows.d_qkv_f16 && owner == KeyValueOwner::Group;
    let composer = operands
        .dropout(composer)
        .size("STRIDE", shape.stride())
        .size("KEY_OFFSET", shape.key_offset())
        .size("VALUE_OFFSET", shape.value_offset())
        .when("ROTATED", rows.rotated)
        .when("F16", rows.qkv_f16 || rows.d_output_f16 || d_qkv)
        .when("QKV_F16", rows.qkv_f16)
        .when("D_OUTPUT_F16", rows.d_output_f16)
        .when("D_QKV_F16", d_qkv);
    let composer = if pass == AttentionPass::KeyValue {
        key_value_constants(composer, shape, owner, ends)
            .module("10_attention_backward_key_value_matrix")
    } else {
        fused_rows(composer.size("MEMBERS", 1), None).module("10_attention_backward_query_matrix")
    };
    let grid = Grid::RowsByX { rows: tile.rows, y: operands.owners(pass) as u32 };
    let AttentionTile { rows: height, columns, .. } = tile;
    let rotated = if rows.rotated { ", rotated back" } else { "" };
    let variant = format!("matrix {height}x{columns} by pairs of {STRIP}x{columns}{rotated}");
    composer.finish(caps, &operands.bindings(pass), grid, variant, reason)
}

fn constants(
    caps: &Capabilities,
    composer: Composer,
    shape: AttentionShape,
    pass: AttentionPass,
    tile: AttentionTile,
    config: MatrixConfig,
) -> Composer {
    let [m, n, k] = [config.m, config.n, config.k].map(|size| size as usize);
    let AttentionTile { rows, columns, row_groups, size, .. } = tile;
    let composer = composer
        .size("BQ", rows)
        .size("BK", columns)
        .size("STRIP", STRIP)
        .size("STRIPS", row_groups)
        .size("PITCH", shape.head_dim + PAD)
        .size("SCORE_PITCH", columns + SCORE_PAD)
        .size("SCALED_PITCH", columns + PAD)
        .float("WEIGHT_BITS", WEIGHT_BITS as f32)
        .float("WEIGHT_UNIT", f32::powi(2.0, WEIGHT_BITS))
        .size("INTERLEAVED", pass.interleaved())
        .flag("LAST_IS_LONGEST", pass != AttentionPass::KeyValue);
    let counts = [
        ("MATRICES", STRIP / m),
        ("DEPTH", shape.head_dim / k),
        ("TILES", columns / n),
        ("STEPS", columns / k),
        ("ACROSS", shape.head_dim * kinds(pass) / 2 / n),
        ("PARTS", 2 / kinds(pass)),
        ("ROUNDS", shape.head_dim / 2 / n),
        ("WEIGHT_KINDS", kinds(pass)),
        ("COLUMN_LOADS", columns * shape.head_dim / 4 / size),
        ("TURNS", rows * columns / 4 / size),
        ("FOUR", 4),
    ];
    (composer.matrix_loops(caps, &counts).matrix(caps, config)).one_of(&MATRIX_USERS, "OF_BACKWARD")
}

#[cfg(test)]
mod tests {
    use super::super::matrix::samples::{device, shape};
    use super::*;

    #[test]
    fn what_fits_the_memory_is_picked() {
        use AttentionPass::{KeyValue, Query};
        for (kibibytes, head_dim, pass, rows) in [
            (48, 64, KeyValue, 32),
            (48, 64, Query, 32),
            (48, 96, KeyValue, 64),
            (48, 128, KeyValue, 64),
            (32, 64, KeyValue, 32),
            (32, 128, KeyValue, 32),
            (32, 128, Query, 32),
        ] {
            let (tile, why) = pick(&device(kibibytes), shape(head_dim), pass).unwrap();
            assert_eq!(tile.rows, rows, "{kibibytes} KiB, heads of {head_dim}: {why}");
        }
    }

    #[test]
    fn what_matrices_cannot_do_has_a_reason() {
        let whole = device(48);
        let mut without = whole.clone();
        without.features.subgroup_matrix = false;
        for (caps, shape, why) in [
            (&whole, shape(72), "heads of 72 are no multiple of 16 up to 128"),
            (&whole, shape(80), "heads of 80 are no multiple of 32"),
            (&without, shape(64), "no subgroup matrices from f16 to f32"),
            (&device(16), shape(64), "no tile of matrices fits 16384 bytes"),
        ] {
            for pass in [AttentionPass::Query, AttentionPass::KeyValue] {
                let refused = pick(caps, shape, pass).unwrap_err();
                assert!(refused.starts_with(why), "{refused}");
            }
        }
    }
}
