//! Attention: forward with logsumexp, the two backward kernels and their pre-pass.

use super::cache::key_rows;
use super::compose::{Binding, Binding::*, Composer, Grid, Kernel, shader};
use super::unrolled::head_module;
use super::workgroup_size;
use crate::caps::Capabilities;
use crate::config::ModelConfig;
use crate::error::{Error, Result};

/// Heads of an attention layer. Fused rows are query heads | key heads | value heads.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct AttentionShape {
    pub heads: usize,
    pub kv_heads: usize,
    /// A multiple of 4, at most 256.
    pub head_dim: usize,
    /// A query sees at most this many of the latest keys, itself among them.
    pub window: Option<usize>,
    /// Scores are squashed into ± this by tanh.
    pub soft_cap: Option<f32>,
    /// Most rows of a batch, or 0 for many: no kernel depends on it, the choice of one may.
    pub tokens: usize,
    /// Rows after which the key-value cache begins anew, or none where it holds every position.
    pub ring: Option<usize>,
}

impl AttentionShape {
    /// The attention of a model for batches of up to `tokens` rows.
    pub fn of(config: &ModelConfig, tokens: usize) -> Self {
        Self {
            heads: config.num_attention_heads,
            kv_heads: config.num_key_value_heads,
            head_dim: config.head_dim,
            window: config.sliding_window,
            soft_cap: config.attn_logit_softcapping.map(|cap| cap as f32),
            tokens,
            ring: None,
        }
    }

    /// Elements of a fused row.
    pub const fn stride(&self) -> usize {
        (self.heads + 2 * self.kv_heads) * self.head_dim
    }

    /// Column of the first key head in a fused row.
    pub const fn key_offset(&self) -> usize {
        self.heads * self.head_dim
    }

    /// Column of the first value head in a fused row.
    pub const fn value_offset(&self) -> usize {
        (self.heads + self.kv_heads) * self.head_dim
    }

    /// Elements of a row of the key-value cache: key heads | value heads.
    pub const fn cache_stride(&self) -> usize {
        2 * self.kv_heads * self.head_dim
    }

    /// Elements of an output row.
    pub const fn width(&self) -> usize {
        self.heads * self.head_dim
    }

    fn scale(&self) -> f32 {
        (1.0 / (self.head_dim as f64).sqrt()) as f32
    }
}

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
/// Candidates in order of preference, measured on an NVIDIA H200 (`bench/NOTES.md`): more rows or
/// more results an invocation lost at every length and head_dim, and so did fewer, except that the
/// half tile fills a GPU better with a short batch. The last two fit where nothing else does.
const TILES: [AttentionTile; 6] = [
    FULL_TILE,
    HALF_TILE,
    AttentionTile::new(32, 32, 8, 128),
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

    const fn name(self) -> &'static str {
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

    fn label(&self) -> String {
        let resident = if self.resident { ", rows resident" } else { "" };
        let Self { rows, columns, row_groups, size, .. } = self;
        format!("tiled {rows}x{columns} by {row_groups}x{}{resident}", size / row_groups)
    }
}

/// Workgroups below which a large GPU has multiprocessors without any.
const FEW_GROUPS: usize = 96;

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

/// The preferred tile that fits; the half tile only where it makes workgroups that a GPU lacks.
fn pick(
    caps: &Capabilities,
    shape: AttentionShape,
    pass: AttentionPass,
    owners: usize,
) -> Result<(AttentionTile, String)> {
    let tiles = attention_tiles(caps, shape, pass);
    let groups = |tile: &AttentionTile| shape.tokens.div_ceil(tile.rows) * owners;
    let short = shape.tokens > 0 && groups(&FULL_TILE) < FEW_GROUPS;
    let wanted = |tile: &&AttentionTile| **tile != HALF_TILE || short;
    let half = tiles.iter().find(|tile| short && **tile == HALF_TILE);
    if let Some(tile) = half.or_else(|| tiles.iter().find(wanted)) {
        let memory =
            tile.chunk(shape, pass, caps.limits.max_compute_workgroup_storage_size as usize);
        let bytes = memory.map_or(0, |chunk| tile.bytes(shape, pass, chunk));
        let reason = if half.is_some() {
            format!("{} workgroups with the full tile leave a large GPU idle", groups(&FULL_TILE))
        } else {
            format!("the preferred tile that fits: {bytes} bytes of workgroup memory")
        };
        return Ok((*tile, reason));
    }
    let last = TILES[TILES.len() - 1];
    let invocations = caps.limits.workgroup_invocations() as usize;
    if invocations < last.size {
        let name = "maxComputeInvocationsPerWorkgroup";
        return Err(Error::limit(name, invocations as u64, last.size as u64, pass.name()));
    }
    let have = u64::from(caps.limits.max_compute_workgroup_storage_size);
    let need = last.bytes(shape, pass, 1) as u64;
    Err(Error::limit("maxComputeWorkgroupStorageSize", have, need, pass.name()))
}

/// Constants and modules that every attention kernel over rows of a batch has.
fn common(composer: Composer, shape: AttentionShape) -> Composer {
    composer
        .size("HEADS", shape.heads)
        .size("KV_HEADS", shape.kv_heads)
        .size("HEAD_DIM", shape.head_dim)
        .flag("WINDOWED", shape.window.is_some())
        .size("WINDOW", shape.window.unwrap_or(1))
        .flag("SOFT_CAPPED", shape.soft_cap.is_some())
        .float("SOFT_CAP", shape.soft_cap.unwrap_or(1.0))
        .float("SCALE", shape.scale())
        .module(shader!("lib/step"))
        .module(shader!("lib/math"))
        .module(shader!("lib/attention_mask"))
        .module(shader!("lib/attention_score"))
}

fn tiled(
    caps: &Capabilities,
    shape: AttentionShape,
    pass: AttentionPass,
    tile: AttentionTile,
) -> Result<Composer> {
    let have = caps.limits.max_compute_workgroup_storage_size as usize;
    let [rows, columns, weights] = pass.kinds();
    let vectors = shape.head_dim / 4;
    let name = pass.name();
    let chunk = tile.chunk(shape, pass, have).ok_or_else(|| {
        let need = tile.bytes(shape, pass, 1) as u64;
        Error::limit("maxComputeWorkgroupStorageSize", have as u64, need, name)
    })?;
    let composer = Composer::new(name, tile.size as u32)
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
        .unrolled("RV", vectors.div_ceil(tile.column_groups()))
        .unrolled("ROW_LOADS", (tile.rows * chunk).div_ceil(tile.size))
        .unrolled("COLUMN_LOADS", (tile.columns * vectors).div_ceil(tile.size));
    Ok(common(composer, shape).module(shader!("lib/attention_tile")))
}

/// Constants and modules of the kernels with one invocation a row and head.
fn row_composer(
    caps: &Capabilities,
    name: &'static str,
    shape: AttentionShape,
) -> Result<Composer> {
    let size = workgroup_size(caps, 8, 1, name)?;
    Ok(common(Composer::new(name, size), shape).module(shader!("lib/flat")))
}

fn row_grid(composer: &Composer, heads: usize) -> Grid {
    Grid::Flat { rows: 1, per_block: heads, per_group: composer.workgroup_size() }
}

const ROW_VARIANT: &str = "invocation a row and head";
const ROW_REASON: &str =
    "the adapter runs on a CPU, where barriers cost more than workgroup memory saves";

/// `attention_forward`. Keys and values come from the fused rows themselves, or with `cached` from
/// the key-value cache. Bindings: query, keys, documents, output, lse, step.
pub fn attention_forward(
    caps: &Capabilities,
    shape: AttentionShape,
    cached: bool,
) -> Result<Kernel> {
    if caps.software {
        let pass = AttentionPass::Forward;
        let loads = [("load_query", "query"), ("load_keys", "keys")];
        let composer = forward_place(row_composer(caps, pass.name(), shape)?, shape, cached)
            .module(&head_module(shape.head_dim / 4, &loads, &[("store_output", "output")]))
            .module(shader!("05_attention_forward_row"));
        let grid = row_grid(&composer, shape.heads);
        return composer.finish(caps, &FORWARD_BINDINGS, grid, ROW_VARIANT, ROW_REASON);
    }
    let (tile, reason) = pick(caps, shape, AttentionPass::Forward, shape.heads)?;
    attention_forward_with_tile(caps, shape, cached, tile, reason)
}

/// [`attention_forward`] with the tile given: for measurements and tests.
pub fn attention_forward_with_tile(
    caps: &Capabilities,
    shape: AttentionShape,
    cached: bool,
    tile: AttentionTile,
    reason: String,
) -> Result<Kernel> {
    let composer = tiled(caps, shape, AttentionPass::Forward, tile)?;
    let grid = Grid::RowsByX { rows: tile.rows, y: shape.heads as u32 };
    forward_place(composer, shape, cached).module(shader!("05_attention_forward")).finish(
        caps,
        &FORWARD_BINDINGS,
        grid,
        tile.label(),
        reason,
    )
}

const FORWARD_BINDINGS: [Binding; 6] = [Read, Read, Read, ReadWrite, ReadWrite, Uniform];

fn forward_place(composer: Composer, shape: AttentionShape, cached: bool) -> Composer {
    let (stride, key, value) = if cached {
        (shape.cache_stride(), 0, shape.kv_heads * shape.head_dim)
    } else {
        (shape.stride(), shape.key_offset(), shape.value_offset())
    };
    key_rows(composer, shape.ring.filter(|_| cached))
        .size("Q_STRIDE", shape.stride())
        .size("KV_STRIDE", stride)
        .size("KEY_OFFSET", key)
        .size("VALUE_OFFSET", value)
}

/// `attention_delta_backward`. Bindings: output, d_output, delta, step.
pub fn attention_delta(caps: &Capabilities, shape: AttentionShape) -> Result<Kernel> {
    let name = "attention_delta_backward";
    let size = workgroup_size(caps, 64, 1, name)?;
    Composer::new(name, size)
        .size("HEADS", shape.heads)
        .size("HEAD_DIM", shape.head_dim)
        .module(shader!("lib/step"))
        .module(shader!("lib/flat"))
        .module(shader!("10_attention_delta"))
        .finish(
            caps,
            &[Read, Read, ReadWrite, Uniform],
            Grid::Flat { rows: 1, per_block: shape.heads, per_group: size as usize },
            "flat",
            "one invocation a row and head",
        )
}

const BACKWARD_BINDINGS: [Binding; 7] = [Read, Read, Read, Read, Read, ReadWrite, Uniform];

fn backward_place(composer: Composer, shape: AttentionShape) -> Composer {
    composer
        .size("STRIDE", shape.stride())
        .size("KEY_OFFSET", shape.key_offset())
        .size("VALUE_OFFSET", shape.value_offset())
}

fn backward_heads(shape: AttentionShape, gradient: &str) -> String {
    let loads = [("load_qkv", "qkv"), ("load_d_output", "d_output")];
    head_module(shape.head_dim / 4, &loads, &[("store_gradient", gradient)])
}

/// `attention_backward_query`. Bindings: qkv, d_output, lse, delta, documents, d_qkv, step.
pub fn attention_backward_query(caps: &Capabilities, shape: AttentionShape) -> Result<Kernel> {
    let pass = AttentionPass::Query;
    if caps.software {
        let composer = backward_place(row_composer(caps, pass.name(), shape)?, shape)
            .module(&backward_heads(shape, "d_qkv"))
            .module(shader!("10_attention_backward_query_row"));
        let grid = row_grid(&composer, shape.heads);
        return composer.finish(caps, &BACKWARD_BINDINGS, grid, ROW_VARIANT, ROW_REASON);
    }
    let (tile, reason) = pick(caps, shape, pass, shape.heads)?;
    attention_backward_query_with_tile(caps, shape, tile, reason)
}

/// [`attention_backward_query`] with the tile given: for measurements and tests.
pub fn attention_backward_query_with_tile(
    caps: &Capabilities,
    shape: AttentionShape,
    tile: AttentionTile,
    reason: String,
) -> Result<Kernel> {
    let grid = Grid::RowsByX { rows: tile.rows, y: shape.heads as u32 };
    backward_place(tiled(caps, shape, AttentionPass::Query, tile)?, shape)
        .module(shader!("10_attention_backward_query"))
        .finish(caps, &BACKWARD_BINDINGS, grid, tile.label(), reason)
}

/// Whose gradients of keys and values a workgroup adds up.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum KeyValueOwner {
    /// A key-value head: all query heads of its group, straight into d_qkv.
    Group,
    /// A query head: into parts that [`attention_group_sum`] adds up.
    Head,
}

/// Workgroups that keep a large GPU busy: fewer, and each query head gets its own.
const BUSY_GROUPS: usize = 256;

/// Who owns gradients of keys and values.
pub fn key_value_owner(shape: AttentionShape) -> KeyValueOwner {
    let few = shape.kv_heads * shape.tokens.div_ceil(32) < BUSY_GROUPS;
    if shape.heads > shape.kv_heads && few { KeyValueOwner::Head } else { KeyValueOwner::Group }
}

fn key_value_place(
    composer: Composer,
    shape: AttentionShape,
    owner: KeyValueOwner,
    ends: usize,
) -> Composer {
    let (members, stride, key, value) = match owner {
        KeyValueOwner::Group => {
            (shape.heads / shape.kv_heads, shape.stride(), shape.key_offset(), shape.value_offset())
        }
        KeyValueOwner::Head => (1, 2 * shape.width(), 0, shape.width()),
    };
    backward_place(composer, shape)
        .size("DOCUMENT_ENDS", ends)
        .size("MEMBERS", members)
        .size("D_STRIDE", stride)
        .size("D_KEY_OFFSET", key)
        .size("D_VALUE_OFFSET", value)
}

/// `attention_backward_key_value` for batches whose document ends lie `ends` elements after the
/// starts. Bindings: qkv, d_output, lse, delta, documents, d_qkv (or parts, by `owner`), step.
pub fn attention_backward_key_value(
    caps: &Capabilities,
    shape: AttentionShape,
    owner: KeyValueOwner,
    ends: usize,
) -> Result<Kernel> {
    let pass = AttentionPass::KeyValue;
    if caps.software {
        let composer = key_value_place(row_composer(caps, pass.name(), shape)?, shape, owner, ends)
            .module(&backward_heads(shape, "d_keys"))
            .module(shader!("10_attention_backward_key_value_row"));
        let grid = row_grid(&composer, owners(shape, owner));
        return composer.finish(caps, &BACKWARD_BINDINGS, grid, ROW_VARIANT, ROW_REASON);
    }
    let (tile, reason) = pick(caps, shape, pass, owners(shape, owner))?;
    attention_backward_key_value_with_tile(caps, shape, owner, ends, tile, reason)
}

fn owners(shape: AttentionShape, owner: KeyValueOwner) -> usize {
    if owner == KeyValueOwner::Head { shape.heads } else { shape.kv_heads }
}

/// [`attention_backward_key_value`] with the tile given: for measurements and tests.
pub fn attention_backward_key_value_with_tile(
    caps: &Capabilities,
    shape: AttentionShape,
    owner: KeyValueOwner,
    ends: usize,
    tile: AttentionTile,
    reason: String,
) -> Result<Kernel> {
    let grid = Grid::RowsByX { rows: tile.rows, y: owners(shape, owner) as u32 };
    key_value_place(tiled(caps, shape, AttentionPass::KeyValue, tile)?, shape, owner, ends)
        .module(shader!("10_attention_backward_key_value"))
        .finish(caps, &BACKWARD_BINDINGS, grid, tile.label(), reason)
}

/// `attention_group_sum`: adds up the parts of [`KeyValueOwner::Head`]. Bindings: parts, d_qkv,
/// step.
pub fn attention_group_sum(caps: &Capabilities, shape: AttentionShape) -> Result<Kernel> {
    let name = "attention_group_sum";
    let size = workgroup_size(caps, 64, 1, name)?;
    Composer::new(name, size)
        .size("HEADS", shape.heads)
        .size("KV_HEADS", shape.kv_heads)
        .size("HEAD_DIM", shape.head_dim)
        .size("STRIDE", shape.stride())
        .size("KEY_OFFSET", shape.key_offset())
        .module(shader!("lib/step"))
        .module(shader!("lib/flat"))
        .module(shader!("10_attention_group_sum"))
        .finish(
            caps,
            &[Read, ReadWrite, Uniform],
            Grid::Flat { rows: 1, per_block: shape.cache_stride() / 4, per_group: size as usize },
            "flat",
            "one invocation a vector of four",
        )
}
