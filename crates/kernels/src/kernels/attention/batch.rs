//! Attention: forward with logsumexp, the two backward kernels and their pre-pass, over the fused
//! rows of a batch or over tensors.

use super::matrix_backward::{self, matrix_kernel};
use super::matrix_forward;
use super::operands::{Operands, common};
use super::specs::{AttentionDelta, AttentionGroupSum};
use super::tile::{FULL_TILE, TALL_TILE, attention_tiles, pick, tiled};
use crate::caps::Capabilities;
use crate::error::Result;
use crate::format::Element;
use crate::kernels::compose::{Binding, Composer, Grid, Kernel, Spec, read, read_write, uniform};
use crate::kernels::limits::{check_storage, workgroup_size};
use crate::kernels::modules::quads;
use crate::kernels::rope::rotated_heads;
use crate::kernels::shape::{
    AttentionHalves, AttentionPass, AttentionShape, AttentionTile, KeyValueOwner, Parts,
};
use crate::kernels::spec::{GIVEN_TILE, KernelSpec};

const ROW_VARIANT: &str = "invocation per row and head";
const ROW_REASON: &str =
    "the adapter runs on a CPU, where barriers cost more than workgroup memory saves";

/// The kernel of a pass: the tile that is given, or what selection picks.
pub(in crate::kernels) fn attention_kernel(
    caps: &Capabilities,
    shape: AttentionShape,
    pass: AttentionPass,
    operands: Operands,
    given: Option<AttentionTile>,
) -> Result<Kernel> {
    let owners = operands.owners(shape, pass);
    let (tile, reason) = match given {
        Some(given) => (given, GIVEN_TILE.into()),
        None if caps.software => return row_kernel(caps, shape, pass, operands),
        None => pick(caps, shape, pass, owners)?,
    };
    let spec = operands.spec(shape, pass, given);
    let composer = common(tiled(caps, spec, shape, pass, tile)?, shape);
    let composer = operands.place(composer, shape, pass);
    let composer = operands.dropout(composer, shape, pass).when("IN_REGISTERS", false);
    let composer = composer.module(match pass {
        AttentionPass::Forward => "05_attention_forward",
        AttentionPass::Query => "10_attention_backward_query",
        AttentionPass::KeyValue => "10_attention_backward_key_value",
    });
    let grid = Grid::RowsByX { rows: tile.rows, y: owners as u32 };
    composer.finish(caps, &operands.bindings(shape, pass), grid, tile.label(), reason)
}

/// The form with one invocation per row and head.
fn row_kernel(
    caps: &Capabilities,
    shape: AttentionShape,
    pass: AttentionPass,
    operands: Operands,
) -> Result<Kernel> {
    let size = workgroup_size(caps, 8, 1, pass.kernel_name())?;
    let spec = operands.spec(shape, pass, None);
    let composer = common(Composer::new(spec, size), shape);
    let composer = operands.place(composer, shape, pass);
    let composer = operands.dropout(composer, shape, pass);
    let composer = composer.when("IN_REGISTERS", true).unroll("VECTORS", shape.head_dim / 4);
    let composer = composer.module(match pass {
        AttentionPass::Forward => "05_attention_forward_row",
        AttentionPass::Query => "10_attention_backward_query_row",
        AttentionPass::KeyValue => "10_attention_backward_key_value_row",
    });
    let per_group = composer.workgroup_size();
    let grid = Grid::Flat { rows: 1, per_block: operands.owners(shape, pass), per_group };
    composer.finish(caps, &operands.bindings(shape, pass), grid, ROW_VARIANT, ROW_REASON)
}

/// `attention_forward`. Keys and values come from the fused rows themselves, or with `cached` from
/// the key-value cache. Bindings: query, keys, documents, output, lse, step, and with dropout
/// range.
///
/// # Errors
/// `limit-exceeded` when no tile fits.
pub fn attention_forward(
    caps: &Capabilities,
    shape: AttentionShape,
    cached: bool,
) -> Result<Kernel> {
    forward(caps, shape, cached, None)
}

/// [`attention_forward`] with the tile given: for measurements and tests.
pub fn attention_forward_with_tile(
    caps: &Capabilities,
    shape: AttentionShape,
    cached: bool,
    tile: AttentionTile,
) -> Result<Kernel> {
    forward(caps, shape, cached, Some(tile))
}

/// The kernel of [`AttentionForward`](super::specs::AttentionForward).
pub(in crate::kernels) fn forward(
    caps: &Capabilities,
    shape: AttentionShape,
    cached: bool,
    tile: Option<AttentionTile>,
) -> Result<Kernel> {
    let operands = Operands::Rows { cached, owner: KeyValueOwner::Group, ends: 0 };
    let mut refused = String::new();
    // A cache is in f32, and what reads it rounds nothing.
    if !cached && tile.is_none_or(|tile| tile.matrix) {
        let picked = match tile {
            Some(tile) => Ok((tile, GIVEN_TILE.into())),
            None => matrix_forward::pick(caps, shape),
        };
        match picked {
            Ok(picked) => return matrix_forward::kernel(caps, shape, operands, tile, picked),
            Err(why) => refused = why,
        }
    }
    let mut kernel = attention_kernel(caps, shape, AttentionPass::Forward, operands, tile)?;
    if !refused.is_empty() {
        kernel.reason += &format!("; not on matrices: {refused}");
    }
    Ok(kernel)
}

/// `attention_delta_backward`. Bindings: output, d_output, delta, step; and where `d_output` lies in `parts`, which is in
/// f32 alone, what it is as a whole, which the kernel writes.
///
/// # Errors
/// `limit-exceeded` when not even one invocation or its workgroup memory fits.
pub fn attention_delta(caps: &Capabilities, shape: AttentionShape, parts: Parts) -> Result<Kernel> {
    debug_assert!(!shape.halves.d_output || parts == Parts::WHOLE, "{shape:?}");
    let mut bindings = vec![read("output"), read("d_output"), read_write("delta"), uniform("step")];
    let AttentionHalves { output, d_output, .. } = shape.halves;
    let place = |composer: Composer| {
        (composer.when("TENSORS", false).when("F16", output || d_output))
            .when("OUTPUT_F16", output)
            .when("D_OUTPUT_F16", d_output)
            .summed_parts(parts, 4)
    };
    if parts != Parts::WHOLE {
        bindings.push(read_write("whole"));
    }
    let spec = KernelSpec::from(AttentionDelta { shape, parts });
    Ok(delta_kernel(caps, spec, shape, shape.heads, &bindings, place)?.of_parts(parts))
}

/// Invocations per row and head of [`attention_delta`]: with heads of 64 each reads two vectors of four.
const DELTA_TEAM: u32 = 8;

/// `attention_delta_backward` for `owners` heads (of all batch items).
pub(in crate::kernels) fn delta_kernel(
    caps: &Capabilities,
    spec: KernelSpec,
    shape: AttentionShape,
    owners: usize,
    bindings: &[Binding],
    place: impl Fn(Composer) -> Composer,
) -> Result<Kernel> {
    let size = workgroup_size(caps, 256, 1, spec.name())?;
    check_storage(caps, [4 * size], spec.name())?;
    // Barriers cost a CPU more than neighbours that read side by side save it.
    let alone = caps.software || !size.is_multiple_of(DELTA_TEAM);
    let team = if alone { 1 } else { DELTA_TEAM as usize };
    let composer = Composer::new(spec, size)
        .size("HEADS", shape.heads)
        .size("HEAD_DIM", shape.head_dim)
        .size("TEAM", team);
    place(composer).module("10_attention_delta").finish(
        caps,
        bindings,
        Grid::Flat { rows: 1, per_block: owners * team, per_group: size as usize },
        "flat",
        if alone {
            "one invocation per row and head"
        } else {
            "neighbours read a head side by side"
        },
    )
}

/// `attention_backward_query`. Bindings: qkv, d_output, lse, delta, documents, d_qkv, step.
///
/// # Errors
/// `limit-exceeded` when no tile fits.
pub fn attention_backward_query(caps: &Capabilities, shape: AttentionShape) -> Result<Kernel> {
    backward_query(caps, shape, None)
}

/// [`attention_backward_query`] with the tile given: for measurements and tests.
pub fn attention_backward_query_with_tile(
    caps: &Capabilities,
    shape: AttentionShape,
    tile: AttentionTile,
) -> Result<Kernel> {
    backward_query(caps, shape, Some(tile))
}

/// The kernel of [`AttentionBackwardQuery`](super::specs::AttentionBackwardQuery).
pub(in crate::kernels) fn backward_query(
    caps: &Capabilities,
    shape: AttentionShape,
    tile: Option<AttentionTile>,
) -> Result<Kernel> {
    backward(caps, shape, AttentionPass::Query, (KeyValueOwner::Group, 0), tile)
}

/// Workgroups that keep a [`GpuClass::LARGE`](crate::caps::GpuClass) busy: fewer, and each query head
/// gets its own.
pub(super) const BUSY_GROUPS: usize = 256;

/// Who owns gradients of keys and values. Where long batches of small heads have tiles of 64 keys, more
/// of these are few.
pub fn key_value_owner(caps: &Capabilities, shape: AttentionShape) -> KeyValueOwner {
    let pass = AttentionPass::KeyValue;
    let rows = match matrix_backward::pick(caps, shape, pass) {
        Ok((tile, _)) => tile.rows,
        Err(_) if attention_tiles(caps, shape, pass).contains(&TALL_TILE) => TALL_TILE.rows,
        Err(_) => FULL_TILE.rows,
    };
    let busy = caps.class().workgroups(BUSY_GROUPS);
    let few = shape.kv_heads * shape.tokens.div_ceil(rows) < busy;
    if shape.heads > shape.kv_heads && few { KeyValueOwner::Head } else { KeyValueOwner::Group }
}

/// `attention_backward_key_value` for batches whose document ends lie `ends` elements after the
/// starts. Bindings: qkv, d_output, lse, delta, documents, d_qkv (or parts, by `owner`), step.
///
/// # Errors
/// `limit-exceeded` when no tile fits.
pub fn attention_backward_key_value(
    caps: &Capabilities,
    shape: AttentionShape,
    owner: KeyValueOwner,
    ends: usize,
) -> Result<Kernel> {
    backward_key_value(caps, shape, (owner, ends), None)
}

/// [`attention_backward_key_value`] with the tile given: for measurements and tests.
pub fn attention_backward_key_value_with_tile(
    caps: &Capabilities,
    shape: AttentionShape,
    owner: KeyValueOwner,
    ends: usize,
    tile: AttentionTile,
) -> Result<Kernel> {
    backward_key_value(caps, shape, (owner, ends), Some(tile))
}

/// The kernel of [`AttentionBackwardKeyValue`](super::specs::AttentionBackwardKeyValue).
pub(in crate::kernels) fn backward_key_value(
    caps: &Capabilities,
    shape: AttentionShape,
    (owner, ends): (KeyValueOwner, usize),
    tile: Option<AttentionTile>,
) -> Result<Kernel> {
    backward(caps, shape, AttentionPass::KeyValue, (owner, ends), tile)
}

/// A backward kernel: on matrices where the device has them and operands may be in f16.
fn backward(
    caps: &Capabilities,
    shape: AttentionShape,
    pass: AttentionPass,
    owner: (KeyValueOwner, usize),
    given: Option<AttentionTile>,
) -> Result<Kernel> {
    let refused = match given {
        Some(tile) if tile.matrix => {
            return matrix_kernel(caps, shape, pass, owner, (tile, GIVEN_TILE.into(), true));
        }
        Some(_) => String::new(),
        None => match matrix_backward::pick(caps, shape, pass) {
            Ok((tile, why)) => {
                return matrix_kernel(caps, shape, pass, owner, (tile, why, false));
            }
            Err(why) => why,
        },
    };
    let operands = Operands::Rows { cached: false, owner: owner.0, ends: owner.1 };
    let mut kernel = attention_kernel(caps, shape, pass, operands, given)?;
    if !refused.is_empty() {
        kernel.reason += &format!("; not on matrices: {refused}");
    }
    Ok(kernel)
}

/// `attention_group_sum`: adds up the parts of [`KeyValueOwner::Head`]. Bindings: parts, d_qkv,
/// step. Where `shape.turned` says so it turns queries and keys back too, in f32: only of a shape that
/// [turns sums](super::super::shape::RopeShape::turns_sums). Bindings: parts, table, documents, rows, step.
pub fn attention_group_sum(caps: &Capabilities, shape: AttentionShape) -> Result<Kernel> {
    let composer = Composer::flat(caps, AttentionGroupSum { shape })?
        .size("HEADS", shape.heads)
        .size("MEMBERS", shape.heads / shape.kv_heads)
        .when("ROTATED", shape.turned);
    if shape.turned {
        let mut kernel = rotated_heads(composer, caps, "10_attention_group_sum", shape.turning())?;
        kernel.variant += ", turned back";
        return Ok(kernel);
    }
    let per_group = composer.workgroup_size();
    quads(composer, Element::halved(shape.halves.d_qkv))
        .size("VECTORS", shape.head_dim / 4)
        .size("KV_VECTORS", shape.cache_stride() / 4)
        .size("STRIDE", shape.stride())
        .size("KEY_OFFSET", shape.key_offset())
        .module("10_attention_group_sum")
        .finish(
            caps,
            &[read("parts"), read_write("d_qkv"), uniform("step")],
            Grid::Flat { rows: 1, per_block: shape.cache_stride() / 4, per_group },
            "flat",
            "one invocation per vector of four",
        )
}
