//! What attention's kernels over many rows work on: bindings, constants and modules of the fused rows of a batch, or of
//! tensors; and the kernels of its passes by tiles and by rows.

use super::tensors::TensorAttention;
use super::tile::{pick, tiled};
use crate::caps::Capabilities;
use crate::error::Result;
use crate::format::Element;
use crate::kernels::compose::{Binding, Composer, Grid, Kernel, Spec, read, read_write, uniform};
use crate::kernels::dropout::dropout_threshold;
use crate::kernels::limits::workgroup_size;
use crate::kernels::modules::{key_rows, soft_cap};
use crate::kernels::shape::{
    AttentionPass, AttentionShape, AttentionTile, BackwardRows, BatchAttention, CacheAttention,
    Constant, DenseMask, KeyValueOwner, MASKED, Scores,
};
use crate::kernels::spec::GIVEN_TILE;

/// What the tiled and the row forms of the attention kernels work on.
#[derive(Clone, Copy, Debug)]
pub(super) enum AttentionOperands {
    /// The fused rows of a batch. Document ends follow `ends` elements after the starts.
    Batch { batch: BatchAttention, rows: BackwardRows, owner: KeyValueOwner, ends: usize },
    /// At most this many rows of a text, and a cache in f32.
    Cache(CacheAttention, usize),
    /// Tensors of `batch` items.
    Tensors { of: TensorAttention, element: Element, dense: DenseMask, batch: usize },
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

impl AttentionOperands {
    /// A batch whose gradients, if the pass is one of these, are those of groups.
    pub(super) const fn of_batch(batch: BatchAttention, rows: BackwardRows) -> Self {
        Self::Batch { batch, rows, owner: KeyValueOwner::Group, ends: 0 }
    }

    pub(super) const fn shape(self) -> AttentionShape {
        match self {
            Self::Batch { batch, .. } => batch.shape,
            Self::Cache(attention, _) => attention.shape,
            Self::Tensors { of, .. } => of.shape,
        }
    }

    /// Most rows, or 0 for many.
    const fn tokens(self) -> usize {
        match self {
            Self::Batch { batch, .. } => batch.tokens,
            Self::Cache(_, tokens) => tokens,
            Self::Tensors { of, .. } => of.tokens,
        }
    }

    const fn dropped(self) -> Option<Constant> {
        match self {
            Self::Batch { batch, .. } => batch.dropout,
            Self::Cache(..) | Self::Tensors { .. } => None,
        }
    }

    const fn rotated(self) -> bool {
        matches!(self, Self::Batch { rows: BackwardRows { rotated: true, .. }, .. })
    }

    pub(super) fn bindings(self, pass: AttentionPass) -> Vec<Binding> {
        let (first, more): (&[Binding], &[Binding]) = match (self, pass) {
            (Self::Tensors { .. }, AttentionPass::Forward) => (&FORWARD_TENSORS, &[]),
            (Self::Tensors { .. }, AttentionPass::Query) => (&BACKWARD_TENSORS, &QUERY_TENSORS),
            (Self::Tensors { .. }, AttentionPass::KeyValue) => {
                (&BACKWARD_TENSORS, &KEY_VALUE_TENSORS)
            }
            (_, AttentionPass::Forward) => (&FORWARD_ROWS, &[]),
            _ => (&BACKWARD_ROWS, &[]),
        };
        let place: &[Binding] = if self.dropped().is_some() { &[uniform("range")] } else { &[] };
        let table: &[Binding] = if self.rotated() { &[read("table")] } else { &[] };
        [first, more, place, table].concat()
    }

    /// Says what is multiplied with probabilities: `lib/attention/dropout.wgsl`.
    pub(super) fn dropout(self, composer: Composer) -> Composer {
        let composer = composer.flag("DROPPED", self.dropped().is_some());
        let Some(Constant(rate)) = self.dropped() else { return composer };
        composer
            .size("THRESHOLD", dropout_threshold(rate))
            .float("KEPT_SCALE", (1.0 / (1.0 - rate)) as f32)
    }

    /// Owners of rows, side by side in the grid: heads, of each batch item.
    pub(super) fn owners(self, pass: AttentionPass) -> usize {
        let by_head = matches!(self, Self::Batch { owner: KeyValueOwner::Head, .. });
        let AttentionShape { heads, kv_heads, .. } = self.shape();
        let owners = if pass == AttentionPass::KeyValue && !by_head { kv_heads } else { heads };
        match self {
            Self::Batch { .. } | Self::Cache(..) => owners,
            Self::Tensors { batch, .. } => owners * batch,
        }
    }

    /// The constants and flags by which a kernel reads, masks and writes: `lib/attention/operands.wgsl`.
    pub(super) fn place(self, composer: Composer, pass: AttentionPass) -> Composer {
        let shape = self.shape();
        let (scores, window, mask) = match self {
            Self::Batch { batch, .. } => (batch.scores, batch.window, DenseMask::None),
            Self::Cache(attention, _) => (attention.scores, attention.window, DenseMask::None),
            Self::Tensors { of, dense, .. } => (of.scores, None, dense),
        };
        let composer = pass_flags(common(composer, shape, scores, window), Some(pass))
            .flag("DENSE", mask != DenseMask::None)
            .when("DENSE_BITS", mask == DenseMask::Bits);
        match (self, pass) {
            (Self::Batch { .. }, AttentionPass::Forward) => {
                let columns = [shape.stride(), shape.key_offset(), shape.value_offset()];
                forward_rows(composer, shape, None, columns)
            }
            (Self::Cache(CacheAttention { ring, .. }, _), _) => {
                let columns = [shape.cache_stride(), 0, shape.kv_heads * shape.head_dim];
                forward_rows(composer, shape, ring, columns)
            }
            (Self::Batch { owner, ends, .. }, AttentionPass::KeyValue) => {
                key_value_constants(backward_rows(composer, shape), shape, owner, ends)
            }
            (Self::Batch { .. }, AttentionPass::Query) => {
                backward_rows(fused_rows(composer, None), shape)
            }
            (Self::Tensors { element, .. }, _) => composer
                .when("TENSORS", true)
                .when("F16", element == Element::F16)
                .size("MEMBERS", shape.members())
                .flag("RINGED", false),
        }
    }
}

/// Says which pass a kernel belongs to, or that it belongs to none.
pub(super) fn pass_flags(composer: Composer, pass: Option<AttentionPass>) -> Composer {
    composer
        .when("FORWARD", pass == Some(AttentionPass::Forward))
        .when("QUERY", pass == Some(AttentionPass::Query))
        .when("KEY_VALUE", pass == Some(AttentionPass::KeyValue))
}

/// Says that a kernel's rows are the fused rows of a batch. If it reads documents' ends, these follow `ends` elements
/// after the starts.
pub(super) fn fused_rows(composer: Composer, ends: Option<usize>) -> Composer {
    let composer = composer.when("TENSORS", false).when("ENDS", ends.is_some());
    ends.into_iter().fold(composer, |composer, ends| composer.size("DOCUMENT_ENDS", ends))
}

/// Constants that every attention kernel over many rows has.
pub(super) fn common(
    composer: Composer,
    shape: AttentionShape,
    scores: Scores,
    window: Option<usize>,
) -> Composer {
    let composer = composer
        .size("HEADS", shape.heads)
        .size("KV_HEADS", shape.kv_heads)
        .size("HEAD_DIM", shape.head_dim)
        .size("VECTORS", shape.head_dim / 4)
        .float("MASKED", MASKED)
        .flag("WINDOWED", window.is_some())
        .size("WINDOW", window.unwrap_or(1));
    soft_cap(composer, scores).float("SCALE", scores.factor(&shape) as f32)
}

/// Constants of fused rows of queries, and of those of keys and values.
fn forward_rows(
    composer: Composer,
    shape: AttentionShape,
    ring: Option<usize>,
    [stride, key, value]: [usize; 3],
) -> Composer {
    key_rows(fused_rows(composer, None), ring)
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
            (shape.members(), shape.stride(), shape.key_offset(), shape.value_offset())
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
    pass: AttentionPass,
    operands: AttentionOperands,
    given: Option<AttentionTile>,
) -> Result<Kernel> {
    let (shape, owners) = (operands.shape(), operands.owners(pass));
    let (tile, reason) = match given {
        Some(given) => (given, GIVEN_TILE.into()),
        None if caps.software => return row_kernel(caps, spec, pass, operands),
        None => pick(caps, shape, pass, (operands.tokens(), owners))?,
    };
    let composer = operands.place(tiled(caps, spec, shape, pass, tile)?, pass);
    let composer = operands.dropout(composer).when("IN_REGISTERS", false);
    let composer = composer.module(match pass {
        AttentionPass::Forward => "05_attention_forward",
        AttentionPass::Query => "10_attention_backward_query",
        AttentionPass::KeyValue => "10_attention_backward_key_value",
    });
    let grid = Grid::RowsByX { rows: tile.rows, y: owners as u32 };
    composer.finish(caps, &operands.bindings(pass), grid, tile.label(), reason)
}

/// The form with one invocation per row and head.
fn row_kernel(
    caps: &Capabilities,
    spec: impl Spec,
    pass: AttentionPass,
    operands: AttentionOperands,
) -> Result<Kernel> {
    let size = workgroup_size(caps, 8, 1, spec.name())?;
    let composer = operands.place(Composer::new(spec, size), pass);
    let composer = operands
        .dropout(composer)
        .when("IN_REGISTERS", true)
        .unroll("VECTORS", operands.shape().head_dim / 4)
        .module(match pass {
            AttentionPass::Forward => "05_attention_forward_row",
            AttentionPass::Query => "10_attention_backward_query_row",
            AttentionPass::KeyValue => "10_attention_backward_key_value_row",
        });
    let grid = Grid::Flat { rows: 1, per_block: operands.owners(pass), per_group: size as usize };
    composer.finish(caps, &operands.bindings(pass), grid, ROW_VARIANT, ROW_REASON)
}

impl Kernel {
    /// Says in the reason why the kernel is not by matrices, where there is something to say.
    pub(super) fn not_on_matrices(mut self, why: &str) -> Self {
        if !why.is_empty() {
            self.reason += &format!("; not on matrices: {why}");
        }
        self
    }
}
