//! What attention's kernels over many rows work on: bindings, constants and modules of the fused rows of a batch, or of
//! tensors; and the kernels of its passes by tiles and by rows.

use super::tile::{pick, tiled};
use crate::caps::Capabilities;
use crate::error::Result;
use crate::format::Element;
use crate::kernels::compose::{Binding, Composer, Grid, Kernel, Spec, read, read_write, uniform};
use crate::kernels::dropout::dropout_threshold;
use crate::kernels::limits::workgroup_size;
use crate::kernels::modules::key_rows;
use crate::kernels::shape::{
    AttentionPass, AttentionShape, AttentionTile, Constant, DenseMask, KeyValueOwner, MASKED,
};
use crate::kernels::spec::GIVEN_TILE;

/// What the tiled and the row forms of the attention kernels work on: the fused rows of a batch, or
/// tensors.
#[derive(Clone, Copy, Debug)]
pub(super) enum Operands {
    /// Keys and values of the forward pass come from the key-value cache if `cached`.
    Rows {
        cached: bool,
        owner: KeyValueOwner,
        ends: usize,
    },
    Tensors {
        element: Element,
        dense: DenseMask,
        batch: usize,
    },
}

const FORWARD_ROWS: [Binding; 6] = [
    read("query"),
    read("keys"),
    read("documents"),
    read_write("output"),
    read_write("lse"),
    uniform("step"),
];
pub(super) const BACKWARD_ROWS: [Binding; 7] = [
    read("qkv"),
    read("d_output"),
    read("lse"),
    read("delta"),
    read("documents"),
    read_write("gradient"),
    uniform("step"),
];
const FORWARD_TENSORS: [Binding; 7] = [
    read("query"),
    read("keys"),
    read("values"),
    read("mask"),
    read_write("output"),
    read_write("lse"),
    uniform("geometry"),
];
const BACKWARD_TENSORS: [Binding; 6] = [
    read("query"),
    read("keys"),
    read("values"),
    read("d_output"),
    read("statistics"),
    read("mask"),
];
const QUERY_TENSORS: [Binding; 2] = [read_write("d_query"), uniform("geometry")];
const KEY_VALUE_TENSORS: [Binding; 3] =
    [read_write("d_key"), read_write("d_value"), uniform("geometry")];

impl Operands {
    pub(super) fn bindings(self, shape: AttentionShape, pass: AttentionPass) -> Vec<Binding> {
        let (first, more): (&[Binding], &[Binding]) = match (self, pass) {
            (Self::Rows { .. }, AttentionPass::Forward) => (&FORWARD_ROWS, &[]),
            (Self::Rows { .. }, _) => (&BACKWARD_ROWS, &[]),
            (Self::Tensors { .. }, AttentionPass::Forward) => (&FORWARD_TENSORS, &[]),
            (Self::Tensors { .. }, AttentionPass::Query) => (&BACKWARD_TENSORS, &QUERY_TENSORS),
            (Self::Tensors { .. }, AttentionPass::KeyValue) => {
                (&BACKWARD_TENSORS, &KEY_VALUE_TENSORS)
            }
        };
        let place: &[Binding] = if shape.dropout.is_some() { &[uniform("range")] } else { &[] };
        let table: &[Binding] = if shape.turned { &[read("table")] } else { &[] };
        [first, more, place, table].concat()
    }

    /// Says what is multiplied with probabilities: `lib/attention/dropout.wgsl`.
    pub(super) fn dropout(
        self,
        composer: Composer,
        shape: AttentionShape,
        pass: AttentionPass,
    ) -> Composer {
        let composer = composer.flag("DROPPED", shape.dropout.is_some());
        let Some(Constant(rate)) = shape.dropout else { return composer };
        // Tiles of keys then begin where blocks of random words do.
        debug_assert!(shape.ring.is_none(), "no plan trains with a ring");
        composer
            .size("PLACE", self.bindings(shape, pass).len() - 1 - usize::from(shape.turned))
            .size("THRESHOLD", dropout_threshold(rate))
            .float("KEPT_SCALE", (1.0 / (1.0 - rate)) as f32)
    }

    /// Whether each query head leaves its part of the gradients of keys and values.
    pub(super) const fn by_head(self) -> bool {
        matches!(self, Self::Rows { owner: KeyValueOwner::Head, .. })
    }

    /// Owners of rows, side by side in the grid: heads, of each batch item.
    pub(super) fn owners(self, shape: AttentionShape, pass: AttentionPass) -> usize {
        let of_groups = pass == AttentionPass::KeyValue && !self.by_head();
        let heads = if of_groups { shape.kv_heads } else { shape.heads };
        match self {
            Self::Rows { .. } => heads,
            Self::Tensors { batch, .. } => heads * batch,
        }
    }

    /// The constants and flags by which a kernel reads, masks and writes: `lib/attention/operands.wgsl`.
    pub(super) fn place(
        self,
        composer: Composer,
        shape: AttentionShape,
        pass: AttentionPass,
    ) -> Composer {
        let composer = pass_flags(composer, Some(pass));
        match self {
            Self::Rows { cached, owner, ends } => {
                let composer = dense(composer, DenseMask::None);
                match pass {
                    AttentionPass::Forward => forward_rows(composer, shape, cached),
                    AttentionPass::Query => backward_rows(fused_rows(composer, None), shape),
                    AttentionPass::KeyValue => {
                        key_value_constants(backward_rows(composer, shape), shape, owner, ends)
                    }
                }
            }
            Self::Tensors { element, dense: mask, .. } => dense(composer, mask)
                .when("TENSORS", true)
                .when("F16", element == Element::F16)
                .size("MEMBERS", shape.heads / shape.kv_heads)
                .flag("RINGED", false),
        }
    }
}

/// Says which pass a kernel is of, or none.
pub(super) fn pass_flags(composer: Composer, pass: Option<AttentionPass>) -> Composer {
    composer
        .when("FORWARD", pass == Some(AttentionPass::Forward))
        .when("QUERY", pass == Some(AttentionPass::Query))
        .when("KEY_VALUE", pass == Some(AttentionPass::KeyValue))
}

fn dense(composer: Composer, mask: DenseMask) -> Composer {
    composer.flag("DENSE", mask != DenseMask::None).when("DENSE_BITS", mask == DenseMask::Bits)
}

/// Says that a kernel's rows are the fused rows of a batch, whose documents' ends lie so many elements behind the starts,
/// if it reads them.
pub(super) fn fused_rows(composer: Composer, ends: Option<usize>) -> Composer {
    let composer = composer.when("TENSORS", false).when("ENDS", ends.is_some());
    ends.into_iter().fold(composer, |composer, ends| composer.size("DOCUMENT_ENDS", ends))
}

/// Constants that every attention kernel over many rows has.
pub(super) fn common(composer: Composer, shape: AttentionShape) -> Composer {
    composer
        .size("HEADS", shape.heads)
        .size("KV_HEADS", shape.kv_heads)
        .size("HEAD_DIM", shape.head_dim)
        .size("VECTORS", shape.head_dim / 4)
        .float("MASKED", MASKED)
        .flag("WINDOWED", shape.window.is_some())
        .size("WINDOW", shape.window.unwrap_or(1))
        .flag("SOFT_CAPPED", shape.soft_cap.is_some())
        .float("SOFT_CAP", shape.soft_cap.unwrap_or(1.0))
        .float("SCALE", shape.score_scale() as f32)
}

fn forward_rows(composer: Composer, shape: AttentionShape, cached: bool) -> Composer {
    let (stride, key, value) = if cached {
        (shape.cache_stride(), 0, shape.kv_heads * shape.head_dim)
    } else {
        (shape.stride(), shape.key_offset(), shape.value_offset())
    };
    key_rows(fused_rows(composer, None), shape.ring.filter(|_| cached))
        .size("Q_STRIDE", shape.stride())
        .size("KV_STRIDE", stride)
        .size("KEY_OFFSET", key)
        .size("VALUE_OFFSET", value)
}

/// Constants of fused rows that are read backward.
pub(super) fn backward_rows(composer: Composer, shape: AttentionShape) -> Composer {
    composer
        .size("STRIDE", shape.stride())
        .size("KEY_OFFSET", shape.key_offset())
        .size("VALUE_OFFSET", shape.value_offset())
}

/// Constants of the rows that keys' and values' gradients go to.
pub(super) fn key_value_constants(
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
    fused_rows(composer, Some(ends))
        .size("MEMBERS", members)
        .size("D_STRIDE", stride)
        .size("D_KEY_OFFSET", key)
        .size("D_VALUE_OFFSET", value)
}

const ROW_VARIANT: &str = "invocation per row and head";
const ROW_REASON: &str =
    "the adapter runs on a CPU, where barriers cost more than workgroup memory saves";

/// The kernel of a pass: the tile that is given, or what selection picks.
pub(super) fn attention_kernel(
    caps: &Capabilities,
    spec: impl Spec,
    shape: AttentionShape,
    pass: AttentionPass,
    operands: Operands,
    given: Option<AttentionTile>,
) -> Result<Kernel> {
    let owners = operands.owners(shape, pass);
    let (tile, reason) = match given {
        Some(given) => (given, GIVEN_TILE.into()),
        None if caps.software => return row_kernel(caps, spec, shape, pass, operands),
        None => pick(caps, shape, pass, owners)?,
    };
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
    spec: impl Spec,
    shape: AttentionShape,
    pass: AttentionPass,
    operands: Operands,
) -> Result<Kernel> {
    let size = workgroup_size(caps, 8, 1, pass.kernel_name())?;
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
