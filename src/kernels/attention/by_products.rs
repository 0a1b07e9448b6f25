//! Attention's backward pass by five plain products, with probabilities and score gradients in memory.

use super::matrix_backward::attention_backward_halves;
use super::operands::common;
use crate::caps::Capabilities;
use crate::error::Result;
use crate::kernels::compose::{Binding, Composer, Grid, Kernel, read, read_write, shader, uniform};
use crate::kernels::limits::check_storage;
use crate::kernels::shape::{AttentionProduct, AttentionShape};
use crate::kernels::spec::KernelSpec;

/// Rows of a strip and keys of one of its tiles.
pub const STRIP: usize = 128;
/// Columns of a workgroup's results; its invocations.
const COLUMNS: usize = 64;
const INVOCATIONS: u32 = 128;
/// Bytes of workgroup memory: 16 steps of K, 8 elements of padding behind each vector's lanes.
const BYTES: u32 = 4 * 16 * (STRIP + COLUMNS + 2 * 16) as u32;
/// Most bytes that probabilities, and as many that score gradients, may take.
const SCRATCH_BYTES: u64 = 64 << 20;

/// Tiles of 128 queries × 128 keys for each head that the backward pass by products has room for, in batches of up to
/// `shape.tokens`; `None` where other kernels take the pass.
pub fn attention_product_tiles(caps: &Capabilities, shape: AttentionShape) -> Option<usize> {
    let limits = &caps.limits;
    let fits = limits.workgroup_invocations() >= INVOCATIONS
        && limits.max_compute_workgroup_storage_size >= BYTES;
    let can = !caps.software && fits && shape.head_dim.is_multiple_of(COLUMNS);
    // What is kept has neither masks nor slopes in it, windows would have tables of their own, and kernels of matrices
    // multiply again.
    let plain = shape.dropout.is_none() && shape.soft_cap.is_none() && shape.window.is_none();
    let strips = shape.tokens.div_ceil(STRIP);
    let (all, least) = (strips * (strips + 1) / 2, 5 * strips / 2);
    let most =
        limits.binding_bytes().min(SCRATCH_BYTES) / (4 * (STRIP * STRIP * shape.heads) as u64);
    let tiles = all.min(most as usize);
    let wanted = plain && !attention_backward_halves(caps, shape);
    (can && wanted && tiles > 0 && tiles >= all.min(least)).then_some(tiles)
}

const BINDINGS: [Binding; 7] = [
    read("qkv"),
    read("d_output"),
    read("statistics"),
    read("documents"),
    read("weights"),
    read_write("gradient"),
    uniform("step"),
];

/// `attention_backward_product` for batches whose documents' ends and tables lie `ends` and twice as many elements
/// after the starts. Bindings: qkv, d_output, lse or delta, documents, what is multiplied, what is written, step.
///
/// # Errors
/// `limit-exceeded` where [`attention_product_tiles`] gives none.
pub fn attention_backward_product(
    caps: &Capabilities,
    shape: AttentionShape,
    tiles: usize,
    ends: usize,
    product: AttentionProduct,
) -> Result<Kernel> {
    let spec = KernelSpec::AttentionBackwardProduct { shape, tiles, ends, product };
    check_storage(caps, BYTES, spec.name())?;
    let strips = shape.tokens.div_ceil(STRIP);
    let scores = matches!(product, AttentionProduct::Probabilities | AttentionProduct::Scores);
    let x_tiles = if scores { STRIP } else { shape.head_dim } / COLUMNS;
    let alone = shape.heads == shape.kv_heads;
    let (stride, offset) = match product {
        AttentionProduct::Key if alone => (shape.stride(), shape.key_offset()),
        AttentionProduct::Value if alone => (shape.stride(), shape.value_offset()),
        AttentionProduct::Key => (2 * shape.width(), 0),
        AttentionProduct::Value => (2 * shape.width(), shape.width()),
        _ => (shape.stride(), 0),
    };
    let scaled = matches!(product, AttentionProduct::Query | AttentionProduct::Key);
    let composer = common(Composer::new(spec, INVOCATIONS), shape)
        .size("KIND", product as usize)
        .size("X_TILES", x_tiles)
        .size("TILES", tiles)
        .size("FIRST_TILE", 2 * ends)
        .size("STRIP_OF_TILE", 2 * ends + strips)
        .size("DOCUMENT_ENDS", ends)
        .size("STRIDE", shape.stride())
        .size("D_STRIDE", stride)
        .size("D_OFFSET", offset)
        .float("FACTOR", if scaled { shape.score_scale() as f32 } else { 1.0 })
        .unrolled("LOADS_A", 4)
        .unrolled("LOADS_B", 2)
        .unrolled("COMPONENTS", 4)
        .unrolled("BK", 16)
        .unrolled("TM", 8)
        .unrolled("SIDE", 2)
        .module(shader!("lib/step"))
        .module(shader!("lib/attention/mask_rows"))
        .module(shader!("lib/attention/mask_rows_back"))
        .module(shader!("10_attention_backward_product"));
    let x = (shape.heads * x_tiles) as u32;
    let grid =
        if scores { Grid::Fixed { x, y: tiles as u32 } } else { Grid::RowsByY { rows: STRIP, x } };
    composer.finish(
        caps,
        &BINDINGS,
        grid,
        "tiled 128x64x16, 8x8 each",
        "probabilities and score gradients in memory: five products instead of seven, by large tiles",
    )
}
