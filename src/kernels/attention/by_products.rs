//! Attention's backward pass by five plain products, with probabilities and score gradients in memory.

use super::batch::BUSY_GROUPS;
use super::matrix_backward::attention_backward_halves;
use super::operands::{BACKWARD_ROWS, backward_rows, common};
use crate::caps::Capabilities;
use crate::error::Result;
use crate::kernels::compose::{Composer, Grid, Kernel, read, read_write, shader, uniform};
use crate::kernels::limits::check_storage;
use crate::kernels::shape::{AttentionShape, AttentionSums};
use crate::kernels::spec::KernelSpec;

/// Rows of a strip and keys of one of its tiles.
pub const STRIP: usize = 128;
/// Columns of a workgroup's results, its steps of K, and its invocations.
const COLUMNS: usize = 64;
const STEPS: usize = 16;
const INVOCATIONS: usize = 128;
/// Vectors of padding behind each step of K.
const PAD: usize = 2;
const BYTES: usize = 4 * STEPS * (STRIP + COLUMNS + 16 * PAD);
/// Most bytes that probabilities, and as many that score gradients, may take.
const SCRATCH_BYTES: u64 = 64 << 20;
/// Keys of the smallest windows. Tiles that reach beyond are computed whole.
const LEAST_WINDOW: usize = 256;

const VARIANT: &str = "products of 128x64x16, 8x8 each";

/// Tiles of 128 queries × 128 keys for each head that the backward pass by products has room for, in batches of up to
/// `shape.tokens`; `None` where other kernels take the pass.
pub fn attention_product_tiles(caps: &Capabilities, shape: AttentionShape) -> Option<usize> {
    let limits = &caps.limits;
    let fits = limits.workgroup_invocations() >= INVOCATIONS as u32
        && limits.max_compute_workgroup_storage_size >= BYTES as u32
        && limits.max_storage_buffers_per_shader_stage >= 8;
    let can = !caps.software && fits && shape.head_dim.is_multiple_of(COLUMNS);
    let wide = shape.window.is_none_or(|window| window >= LEAST_WINDOW);
    let strips = shape.tokens.div_ceil(STRIP);
    let (all, least) = (strips * (strips + 1) / 2, 5 * strips / 2);
    let most =
        limits.binding_bytes().min(SCRATCH_BYTES) / (4 * (STRIP * STRIP * shape.heads) as u64);
    let tiles = all.min(most as usize);
    // What is kept has no masks of dropout in it, and kernels of matrices multiply again.
    let wanted = wide && shape.dropout.is_none() && !attention_backward_halves(caps, shape);
    (can && wanted && tiles > 0 && tiles >= all.min(least)).then_some(tiles)
}

/// The kernels of sums, in the order of their dispatches. Two make long batches faster, one batches with few workgroups.
pub fn attention_sums(caps: &Capabilities, shape: AttentionShape) -> &'static [AttentionSums] {
    let few = shape.heads * shape.tokens.div_ceil(STRIP) < caps.class().workgroups(BUSY_GROUPS);
    if few { &[AttentionSums::All] } else { &[AttentionSums::Query, AttentionSums::KeyValue] }
}

/// What both kernels have.
fn composer(spec: KernelSpec, shape: AttentionShape, tiles: usize, ends: usize) -> Composer {
    let loads = |side: usize| side * STEPS / 4 / INVOCATIONS;
    common(Composer::new(spec, INVOCATIONS as u32), shape)
        .size("STRIP", STRIP)
        .size("BM", STRIP)
        .size("BN", COLUMNS)
        .unrolled("BK", STEPS)
        .size("PAD", PAD)
        .unrolled("TM", 8)
        .unrolled("SIDE", 2)
        .unrolled("LOADS_A", loads(STRIP))
        .unrolled("LOADS_B", loads(COLUMNS))
        .size("TILES", tiles)
        .size("FIRST_TILE", 2 * ends)
        .module(shader!("lib/step"))
        .module(shader!("lib/attention/mask_rows"))
        .module(shader!("lib/attention/products"))
}

/// `attention_backward_scores` for batches whose documents' ends and tables of tiles lie `ends` and twice as many
/// elements behind the starts. Bindings: qkv, d_output, lse, delta, documents, probabilities (as `gradient`), step,
/// d_scores.
///
/// # Errors
/// `limit-exceeded` where [`attention_product_tiles`] gives none.
pub fn attention_backward_scores(
    caps: &Capabilities,
    shape: AttentionShape,
    tiles: usize,
    ends: usize,
) -> Result<Kernel> {
    let spec = KernelSpec::AttentionBackwardScores { shape, tiles, ends };
    check_storage(caps, BYTES as u32, spec.name())?;
    let composer = composer(spec, shape, tiles, ends)
        .size("STRIP_OF_TILE", 2 * ends + shape.tokens.div_ceil(STRIP))
        .unrolled("KINDS", 2);
    backward_rows(composer, shape).module(shader!("10_attention_backward_scores")).finish(
        caps,
        &[&BACKWARD_ROWS[..], &[read_write("d_scores")]].concat(),
        Grid::Fixed { x: (shape.heads * STRIP / COLUMNS) as u32, y: tiles as u32 },
        VARIANT,
        "probabilities and score gradients in memory: five products instead of seven",
    )
}

/// `attention_backward_sums`, for the same batches. Bindings: qkv, d_output, documents, probabilities, d_scores, d_qkv,
/// step, and where heads share keys the parts for `attention_group_sum`.
///
/// # Errors
/// As [`attention_backward_scores`].
pub fn attention_backward_sums(
    caps: &Capabilities,
    shape: AttentionShape,
    tiles: usize,
    ends: usize,
    sums: AttentionSums,
) -> Result<Kernel> {
    let spec = KernelSpec::AttentionBackwardSums { shape, tiles, ends, sums };
    check_storage(caps, BYTES as u32, spec.name())?;
    let (first, kinds, reason) = match sums {
        AttentionSums::All => (0, 3, "one dispatch: few workgroups"),
        AttentionSums::Query => (0, 1, "many workgroups, all of queries"),
        AttentionSums::KeyValue => (1, 2, "many workgroups, all of keys and values"),
    };
    let shared = shape.heads > shape.kv_heads;
    let composer = composer(spec, shape, tiles, ends)
        .size("DOCUMENT_ENDS", ends)
        .size("STRIDE", shape.stride())
        .size("FIRST_KIND", first)
        .unrolled("KINDS", kinds)
        .module(shader!("lib/attention/mask_rows_back"))
        .module(if shared {
            shader!("lib/attention/sums_parts")
        } else {
            shader!("lib/attention/sums_whole")
        })
        .module(shader!("10_attention_backward_sums"));
    let mut bindings = vec![read("qkv"), read("d_output"), read("documents")];
    bindings.extend([read("probabilities"), read("d_scores"), read_write("gradient")]);
    bindings.push(uniform("step"));
    bindings.extend(shared.then_some(read_write("parts")));
    let x = (kinds * shape.heads * shape.head_dim / COLUMNS) as u32;
    composer.finish(caps, &bindings, Grid::RowsByY { rows: STRIP, x }, VARIANT, reason)
}
