//! Attention: forward with logsumexp, the two backward kernels and their pre-pass.

use super::compose::{Binding, Binding::*, Composer, Grid, Kernel, shader};
use super::unrolled::head_module;
use super::workgroup_size;
use crate::caps::Capabilities;
use crate::error::{Error, Result};

/// Heads of an attention layer. Fused rows are query heads | key heads | value heads.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct AttentionShape {
    pub heads: usize,
    pub kv_heads: usize,
    /// A multiple of 4, at most 256.
    pub head_dim: usize,
}

impl AttentionShape {
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
/// `groups` × `size / groups` invocations.
#[derive(Clone, Copy, Debug)]
struct Tile {
    rows: usize,
    columns: usize,
    groups: usize,
    size: usize,
}

/// Candidates, largest first. An invocation keeps rows · head_dim / size accumulators in registers.
const TILES: [Tile; 6] = [
    Tile { rows: 32, columns: 32, groups: 8, size: 64 },
    Tile { rows: 32, columns: 16, groups: 8, size: 64 },
    Tile { rows: 16, columns: 8, groups: 8, size: 64 },
    Tile { rows: 16, columns: 4, groups: 16, size: 64 },
    Tile { rows: 8, columns: 4, groups: 4, size: 16 },
    Tile { rows: 2, columns: 2, groups: 2, size: 4 },
];

/// The first tile whose accumulators and workgroup memory fit.
fn pick(
    caps: &Capabilities,
    shape: AttentionShape,
    accumulators: usize,
    bytes: impl Fn(&Tile) -> usize,
    what: &str,
) -> Result<(Tile, String)> {
    let invocations = caps.limits.workgroup_invocations() as usize;
    let storage = caps.limits.max_compute_workgroup_storage_size as usize;
    let registers = |tile: &Tile| {
        let vectors = (shape.head_dim / 4).div_ceil(tile.size / tile.groups);
        tile.rows / tile.groups * vectors * 4 * accumulators
    };
    // 64 accumulators leave room for the rest in any GPU's registers; 128 still fit the large ones.
    for most in [64, 128, usize::MAX] {
        let fits = |t: &&Tile| t.size <= invocations && bytes(t) <= storage && registers(t) <= most;
        if let Some(tile) = TILES.iter().find(fits) {
            let reason = format!(
                "{} rows by {} columns of head_dim {}: {} of {storage} bytes of workgroup memory, {} accumulators each",
                tile.rows,
                tile.columns,
                shape.head_dim,
                bytes(tile),
                registers(tile)
            );
            return Ok((*tile, reason));
        }
    }
    let last = TILES[TILES.len() - 1];
    if invocations < last.size {
        let name = "maxComputeInvocationsPerWorkgroup";
        return Err(Error::limit(name, invocations as u64, last.size as u64, what));
    }
    Err(Error::limit("maxComputeWorkgroupStorageSize", storage as u64, bytes(&last) as u64, what))
}

fn composer(name: &'static str, shape: AttentionShape, tile: &Tile) -> Composer {
    Composer::new(name, tile.size as u32)
        .size("HEADS", shape.heads)
        .size("KV_HEADS", shape.kv_heads)
        .size("HEAD_DIM", shape.head_dim)
        .size("BQ", tile.rows)
        .size("BK", tile.columns)
        .size("ROW_GROUPS", tile.groups)
        .float("SCALE", shape.scale())
        .module(shader!("lib/step"))
        .module(shader!("lib/attention_tile"))
}

/// Constants and modules of the kernels with one invocation a row and head.
fn row_composer(
    caps: &Capabilities,
    name: &'static str,
    shape: AttentionShape,
) -> Result<Composer> {
    let size = workgroup_size(caps, 8, 1, name)?;
    Ok(Composer::new(name, size)
        .size("HEADS", shape.heads)
        .size("KV_HEADS", shape.kv_heads)
        .size("HEAD_DIM", shape.head_dim)
        .float("SCALE", shape.scale())
        .module(shader!("lib/step"))
        .module(shader!("lib/flat")))
}

fn row_grid(composer: &Composer, heads: usize) -> Grid {
    Grid::Flat { rows: 1, per_block: heads, per_group: composer.workgroup_size() }
}

const ROW_VARIANT: &str = "invocation a row and head";
const ROW_REASON: &str =
    "the adapter runs on a CPU, where barriers cost more than workgroup memory saves";

fn tile_name(tile: &Tile) -> String {
    format!("tiled {}x{}", tile.rows, tile.columns)
}

fn query_bytes(shape: AttentionShape) -> impl Fn(&Tile) -> usize {
    move |t| 4 * (t.columns * shape.head_dim + t.rows * (t.columns + t.size / t.groups))
}

/// `attention_forward`. Keys and values come from the fused rows themselves, or with `cached` from
/// the key-value cache. Bindings: query, keys, documents, output, lse, step.
pub fn attention_forward(
    caps: &Capabilities,
    shape: AttentionShape,
    cached: bool,
) -> Result<Kernel> {
    let name = "attention_forward";
    let (stride, key, value) = if cached {
        (shape.cache_stride(), 0, shape.kv_heads * shape.head_dim)
    } else {
        (shape.stride(), shape.key_offset(), shape.value_offset())
    };
    let place = |composer: Composer| {
        composer
            .size("Q_STRIDE", shape.stride())
            .size("KV_STRIDE", stride)
            .size("KEY_OFFSET", key)
            .size("VALUE_OFFSET", value)
    };
    let bindings = [Read, Read, Read, ReadWrite, ReadWrite, Uniform];
    if caps.software {
        let loads = [("load_query", "query"), ("load_keys", "keys")];
        let composer = place(row_composer(caps, name, shape)?)
            .module(&head_module(shape.head_dim / 4, &loads, &[("store_output", "output")]))
            .module(shader!("05_attention_forward_row"));
        let grid = row_grid(&composer, shape.heads);
        return composer.finish(caps, &bindings, grid, ROW_VARIANT, ROW_REASON);
    }
    let (tile, reason) = pick(caps, shape, 1, query_bytes(shape), name)?;
    let grid = Grid::RowsByX { rows: tile.rows, y: shape.heads as u32 };
    place(composer(name, shape, &tile)).module(shader!("05_attention_forward")).finish(
        caps,
        &bindings,
        grid,
        tile_name(&tile),
        reason,
    )
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

fn backward_heads(shape: AttentionShape) -> String {
    let loads = [("load_qkv", "qkv"), ("load_d_output", "d_output")];
    head_module(shape.head_dim / 4, &loads, &[("store_d_qkv", "d_qkv")])
}

/// `attention_backward_query`. Bindings: qkv, d_output, lse, delta, documents, d_qkv, step.
pub fn attention_backward_query(caps: &Capabilities, shape: AttentionShape) -> Result<Kernel> {
    let name = "attention_backward_query";
    if caps.software {
        let composer = backward_place(row_composer(caps, name, shape)?, shape)
            .module(&backward_heads(shape))
            .module(shader!("10_attention_backward_query_row"));
        let grid = row_grid(&composer, shape.heads);
        return composer.finish(caps, &BACKWARD_BINDINGS, grid, ROW_VARIANT, ROW_REASON);
    }
    let (tile, reason) = pick(caps, shape, 1, query_bytes(shape), name)?;
    let grid = Grid::RowsByX { rows: tile.rows, y: shape.heads as u32 };
    backward_place(composer(name, shape, &tile), shape)
        .module(shader!("10_attention_backward_query"))
        .finish(caps, &BACKWARD_BINDINGS, grid, tile_name(&tile), reason)
}

/// `attention_backward_key_value` for batches whose document ends lie `ends` elements after the
/// starts. Bindings: qkv, d_output, lse, delta, documents, d_qkv, step.
pub fn attention_backward_key_value(
    caps: &Capabilities,
    shape: AttentionShape,
    ends: usize,
) -> Result<Kernel> {
    let name = "attention_backward_key_value";
    if caps.software {
        let composer = backward_place(row_composer(caps, name, shape)?, shape)
            .size("DOCUMENT_ENDS", ends)
            .module(&backward_heads(shape))
            .module(shader!("10_attention_backward_key_value_row"));
        let grid = row_grid(&composer, shape.kv_heads);
        return composer.finish(caps, &BACKWARD_BINDINGS, grid, ROW_VARIANT, ROW_REASON);
    }
    let bytes = |t: &Tile| 8 * (t.columns * shape.head_dim + t.rows * t.columns);
    let (tile, reason) = pick(caps, shape, 2, bytes, name)?;
    let grid = Grid::RowsByX { rows: tile.rows, y: shape.kv_heads as u32 };
    backward_place(composer(name, shape, &tile), shape)
        .size("DOCUMENT_ENDS", ends)
        .module(shader!("10_attention_backward_key_value"))
        .finish(caps, &BACKWARD_BINDINGS, grid, tile_name(&tile), reason)
}
