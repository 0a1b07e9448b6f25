//! Attention's backward pass by plain products: probabilities and score gradients of some heads at a time lie in
//! scratch, and products with them are the gradients.

use super::matrix_backward::attention_backward_halves;
use super::operands::{BACKWARD_ROWS, backward_rows, common, key_value_constants};
use crate::caps::Capabilities;
use crate::error::Result;
use crate::kernels::compose::{Composer, Grid, Kernel, read, read_write, shader, uniform};
use crate::kernels::limits::check_storage;
use crate::kernels::shape::{AttentionScratch, AttentionShape, KeyValueOwner};
use crate::kernels::spec::KernelSpec;

/// Rows of a strip, in which all rows have the same keys in scratch; rows and columns of a tile, and steps of K.
const STRIP: usize = 128;
const TILE: [usize; 3] = [128, 64, 16];
const INVOCATIONS: u32 = 128;
/// Vectors behind each step of K, as products that transpose an operand have.
const PAD: usize = 2;
/// Bytes of both tiles.
const BYTES: usize = 4 * TILE[2] * (TILE[0] + TILE[1] + 16 * PAD);
/// Most bytes that probabilities, and as many that score gradients, may take.
const SCRATCH_BYTES: u64 = 64 << 20;

const VARIANT: &str = "by products 128x64x16, 8x8 each";
const REASON: &str = "probabilities kept: five products, each by large tiles";

impl AttentionScratch {
    /// Elements of the probabilities, and of the score gradients.
    pub const fn elements(&self) -> u64 {
        // In 64 bits: a browser's 32 would overflow.
        self.heads as u64 * self.rows as u64 * self.keys as u64
    }

    /// For documents of up to `longest` tokens, with as many heads at a time as there is room for.
    fn of(shape: AttentionShape, longest: usize, most: u64) -> Option<Self> {
        let rows = shape.tokens.next_multiple_of(STRIP);
        // A document may begin anywhere in a strip.
        let seen = shape.window.map_or(longest, |window| window.min(longest));
        let keys = ((seen - 1).next_multiple_of(STRIP) + STRIP).min(rows);
        let members = shape.heads / shape.kv_heads;
        let fits = |groups: &usize| {
            let heads = groups * members;
            shape.kv_heads.is_multiple_of(*groups)
                && 4 * Self { rows, keys, heads }.elements() <= most
        };
        let groups = (1..=shape.kv_heads).rev().find(fits)?;
        Some(Self { rows, keys, heads: groups * members })
    }
}

/// How the backward pass by plain products lays out its scratch for batches of up to `shape.tokens`, whose documents
/// have up to `longest`; `None` where other kernels take the pass.
pub fn attention_scratch(
    caps: &Capabilities,
    shape: AttentionShape,
    longest: usize,
) -> Option<AttentionScratch> {
    let limits = &caps.limits;
    let fits = limits.workgroup_invocations() >= INVOCATIONS
        && limits.max_compute_workgroup_storage_size as usize >= BYTES
        && limits.max_storage_buffers_per_shader_stage >= 8;
    let can = !caps.software && fits && shape.head_dim.is_multiple_of(TILE[1]);
    // What is kept has no masks in it, and kernels of matrices multiply again.
    let wanted = shape.dropout.is_none() && !attention_backward_halves(caps, shape);
    let most = limits.binding_bytes().min(SCRATCH_BYTES);
    (can && wanted && shape.tokens > 0)
        .then(|| AttentionScratch::of(shape, longest.min(shape.tokens), most))
        .flatten()
}

/// What both kernels have.
fn composer(spec: KernelSpec, shape: AttentionShape, scratch: AttentionScratch) -> Composer {
    let [bm, bn, bk] = TILE;
    let loads = |side: usize| side * bk / 4 / INVOCATIONS as usize;
    let composer = common(Composer::new(spec, INVOCATIONS), shape)
        .size("STRIP", STRIP)
        .size("BM", bm)
        .size("BN", bn)
        .unrolled("BK", bk)
        .size("PAD", PAD)
        .unrolled("TM", 8)
        .unrolled("SIDE", 2)
        .unrolled("LOADS_A", loads(bm))
        .unrolled("LOADS_B", loads(bn))
        .size("SCRATCH_ROWS", scratch.rows)
        .size("SCRATCH_KEYS", scratch.keys);
    backward_rows(composer, shape)
        .module(shader!("lib/step"))
        .module(shader!("lib/range"))
        .module(shader!("lib/attention/mask_rows"))
        .module(shader!("lib/attention/products"))
}

/// `attention_backward_scores` of the heads from `range.col0` on. Bindings: qkv, d_output, lse, delta, documents,
/// probabilities (as `gradient`), step, d_scores, range.
///
/// # Errors
/// `limit-exceeded` where [`attention_scratch`] gives none.
pub fn attention_backward_scores(
    caps: &Capabilities,
    shape: AttentionShape,
    scratch: AttentionScratch,
) -> Result<Kernel> {
    let spec = KernelSpec::AttentionBackwardScores { shape, scratch };
    check_storage(caps, BYTES as u32, spec.name())?;
    let x = scratch.keys / TILE[1] * scratch.heads;
    composer(spec, shape, scratch).module(shader!("10_attention_backward_scores")).finish(
        caps,
        &[&BACKWARD_ROWS[..], &[read_write("d_scores"), uniform("range")]].concat(),
        Grid::RowsByY { rows: TILE[0], x: x as u32 },
        VARIANT,
        REASON,
    )
}

/// `attention_backward_sums` of the heads from `range.col0` on, for batches whose document ends lie `ends` elements
/// after the starts. Bindings: qkv, d_output, lse, delta, documents, d_qkv, step, probabilities, d_scores, range.
///
/// # Errors
/// As [`attention_backward_scores`].
pub fn attention_backward_sums(
    caps: &Capabilities,
    shape: AttentionShape,
    scratch: AttentionScratch,
    ends: usize,
) -> Result<Kernel> {
    let spec = KernelSpec::AttentionBackwardSums { shape, scratch, ends };
    check_storage(caps, BYTES as u32, spec.name())?;
    let key_values = 2 * scratch.heads * shape.kv_heads / shape.heads;
    let x = shape.head_dim / TILE[1] * (key_values + scratch.heads);
    let composer = composer(spec, shape, scratch).size("KEY_VALUE_ITEMS", key_values);
    key_value_constants(composer, shape, KeyValueOwner::Group, ends)
        .module(shader!("lib/attention/backward_rows_query"))
        .module(shader!("lib/attention/backward_rows_key_value"))
        .module(shader!("lib/attention/mask_rows_back"))
        .module(shader!("10_attention_backward_sums"))
        .finish(
            caps,
            &[&BACKWARD_ROWS[..], &[read("probabilities"), read("d_scores"), uniform("range")]]
                .concat(),
            Grid::RowsByY { rows: TILE[0], x: x as u32 },
            VARIANT,
            REASON,
        )
}
