//! Attention: forward with logsumexp, the two backward kernels and their pre-pass, over the fused
//! rows of a batch or over tensors.

use super::tile::{FULL_TILE, TALL_TILE, attention_tiles, pick, tiled};
use crate::caps::Capabilities;
use crate::error::Result;
use crate::format::Element;
use crate::kernels::compose::{Binding, Composer, Grid, Kernel, read, read_write, shader, uniform};
use crate::kernels::elementwise::dropout_threshold;
use crate::kernels::limits::workgroup_size;
use crate::kernels::modules::key_rows;
use crate::kernels::shape::{
    AttentionPass, AttentionShape, AttentionTile, Constant, DenseMask, KeyValueOwner, MASKED,
};
use crate::kernels::spec::{GIVEN_TILE, KernelSpec};
use crate::kernels::unrolled::{head_access, head_module};

/// What the tiled and the row forms of the attention kernels work on: the fused rows of a batch, or
/// tensors.
#[derive(Clone, Copy, Debug)]
pub(in crate::kernels) enum Operands {
    /// Keys and values of the forward pass come from the key-value cache if `cached`. The kernel of
    /// queries leaves its scores for that of keys and values if `kept`.
    Rows {
        cached: bool,
        owner: KeyValueOwner,
        ends: usize,
        kept: bool,
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
const BACKWARD_ROWS: [Binding; 7] = [
    read("qkv"),
    read("d_output"),
    read("lse"),
    read("delta"),
    read("documents"),
    read_write("gradient"),
    uniform("step"),
];
const QUERY_KEPT: [Binding; 2] = [read_write("probabilities"), read_write("d_scores")];
const KEY_VALUE_KEPT: [Binding; 2] = [read("probabilities"), read("d_scores")];
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
    fn bindings(self, shape: AttentionShape, pass: AttentionPass) -> Vec<Binding> {
        let (first, more): (&[Binding], &[Binding]) = match (self, pass) {
            (Self::Rows { .. }, AttentionPass::Forward) => (&FORWARD_ROWS, &[]),
            (Self::Rows { kept: false, .. }, _) => (&BACKWARD_ROWS, &[]),
            (Self::Rows { .. }, AttentionPass::Query) => (&BACKWARD_ROWS, &QUERY_KEPT),
            (Self::Rows { .. }, AttentionPass::KeyValue) => (&BACKWARD_ROWS, &KEY_VALUE_KEPT),
            (Self::Tensors { .. }, AttentionPass::Forward) => (&FORWARD_TENSORS, &[]),
            (Self::Tensors { .. }, AttentionPass::Query) => (&BACKWARD_TENSORS, &QUERY_TENSORS),
            (Self::Tensors { .. }, AttentionPass::KeyValue) => {
                (&BACKWARD_TENSORS, &KEY_VALUE_TENSORS)
            }
        };
        let place: &[Binding] = if shape.dropout.is_some() { &[uniform("range")] } else { &[] };
        [first, more, place].concat()
    }

    /// Adds what is multiplied with probabilities.
    fn dropout(self, composer: Composer, shape: AttentionShape, pass: AttentionPass) -> Composer {
        if self.kept() && pass == AttentionPass::KeyValue {
            return composer;
        }
        let Some(Constant(rate)) = shape.dropout else {
            return composer.module(shader!("lib/attention/dropout_none"));
        };
        // Tiles of keys then begin where blocks of random words do.
        debug_assert!(shape.ring.is_none(), "no plan trains with a ring");
        composer
            .size("PLACE", self.bindings(shape, pass).len() - 1)
            .size("THRESHOLD", dropout_threshold(rate))
            .float("KEPT_SCALE", (1.0 / (1.0 - rate)) as f32)
            .module(shader!("lib/philox"))
            .module(shader!("lib/range"))
            .module(shader!("lib/attention/dropout"))
    }

    fn spec(
        self,
        shape: AttentionShape,
        pass: AttentionPass,
        tile: Option<AttentionTile>,
    ) -> KernelSpec {
        match (self, pass) {
            (Self::Rows { cached, .. }, AttentionPass::Forward) => {
                KernelSpec::AttentionForward { shape, cached, tile }
            }
            (Self::Rows { kept, .. }, AttentionPass::Query) => {
                KernelSpec::AttentionBackwardQuery { shape, kept, tile }
            }
            (Self::Rows { owner, ends, kept, .. }, AttentionPass::KeyValue) => {
                KernelSpec::AttentionBackwardKeyValue { shape, owner, ends, kept, tile }
            }
            (Self::Tensors { element, dense, batch }, _) => {
                KernelSpec::AttentionTensors { shape, pass, element, dense, batch }
            }
        }
    }

    const fn kept(self) -> bool {
        matches!(self, Self::Rows { kept: true, .. })
    }

    /// Owners of rows, side by side in the grid: heads, of each batch item.
    fn owners(self, shape: AttentionShape, pass: AttentionPass) -> usize {
        let by_head = match self {
            Self::Rows { owner, .. } => owner == KeyValueOwner::Head,
            Self::Tensors { .. } => false,
        };
        let heads =
            if pass == AttentionPass::KeyValue && !by_head { shape.kv_heads } else { shape.heads };
        match self {
            Self::Rows { .. } => heads,
            Self::Tensors { batch, .. } => heads * batch,
        }
    }

    /// The constants and modules through which a kernel reads, masks and writes.
    fn place(self, composer: Composer, shape: AttentionShape, pass: AttentionPass) -> Composer {
        match self {
            Self::Rows { cached, owner, ends, kept } => {
                let composer = match pass {
                    AttentionPass::Forward => forward_rows(composer, shape, cached),
                    AttentionPass::Query if kept => {
                        query_rows(composer, shape).module(shader!("lib/attention/keep_write"))
                    }
                    AttentionPass::Query => {
                        query_rows(composer, shape).module(shader!("lib/attention/keep_none"))
                    }
                    AttentionPass::KeyValue => {
                        key_value_rows(backward_rows(composer, shape), shape, owner, ends)
                    }
                };
                let composer = if kept {
                    composer
                        .size("KEPT_BLOCK", FULL_TILE.rows)
                        .size("KEPT_TILES", shape.tokens.div_ceil(FULL_TILE.rows))
                        .module(shader!("lib/attention/kept"))
                } else {
                    composer
                };
                let composer = composer
                    .module(shader!("lib/step"))
                    .module(shader!("lib/attention/mask_rows"))
                    .module(shader!("lib/attention/dense_none"));
                if pass == AttentionPass::KeyValue {
                    return composer.module(shader!("lib/attention/mask_rows_back"));
                }
                composer
            }
            Self::Tensors { element, dense, .. } => {
                let composer = composer
                    .size("MEMBERS", shape.heads / shape.kv_heads)
                    .flag("RINGED", false)
                    .module(shader!("lib/attention/geometry"))
                    .module(shader!("lib/attention/mask_tensors"));
                let composer = dense
                    .module(element.module(composer))
                    .module(shader!("lib/attention/inputs_tensors"));
                match pass {
                    AttentionPass::Forward => {
                        composer.module(shader!("lib/attention/forward_tensors"))
                    }
                    AttentionPass::Query => composer
                        .module(shader!("lib/attention/backward_tensors"))
                        .module(shader!("lib/attention/backward_tensors_query"))
                        .module(shader!("lib/attention/keep_none")),
                    AttentionPass::KeyValue => composer
                        .module(shader!("lib/attention/backward_tensors"))
                        .module(shader!("lib/attention/backward_tensors_key_value")),
                }
            }
        }
    }
}

/// Constants and modules that every attention kernel has.
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
        .module(shader!("lib/math"))
        .module(shader!("lib/attention/score"))
}

fn forward_rows(composer: Composer, shape: AttentionShape, cached: bool) -> Composer {
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
        .module(shader!("lib/attention/forward_rows"))
}

fn backward_rows(composer: Composer, shape: AttentionShape) -> Composer {
    composer
        .size("STRIDE", shape.stride())
        .size("KEY_OFFSET", shape.key_offset())
        .size("VALUE_OFFSET", shape.value_offset())
        .module(shader!("lib/attention/backward_rows"))
}

fn query_rows(composer: Composer, shape: AttentionShape) -> Composer {
    backward_rows(composer, shape).module(shader!("lib/attention/backward_rows_query"))
}

fn key_value_rows(
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
    composer
        .size("DOCUMENT_ENDS", ends)
        .size("MEMBERS", members)
        .size("D_STRIDE", stride)
        .size("D_KEY_OFFSET", key)
        .size("D_VALUE_OFFSET", value)
        .module(shader!("lib/attention/backward_rows_key_value"))
}

const ROW_VARIANT: &str = "invocation per row and head";
const ROW_REASON: &str =
    "the adapter runs on a CPU, where barriers cost more than workgroup memory saves";

const KEPT_REASON: &str = "scores kept for keys and values: five products instead of seven";

/// The kernel of a pass: the tile that is given, or what selection picks.
pub(in crate::kernels) fn attention_kernel(
    caps: &Capabilities,
    shape: AttentionShape,
    pass: AttentionPass,
    operands: Operands,
    given: Option<AttentionTile>,
) -> Result<Kernel> {
    let owners = operands.owners(shape, pass);
    let kept = operands.kept();
    let (tile, reason) = match given {
        _ if kept => (FULL_TILE, KEPT_REASON.into()),
        Some(given) => (given, GIVEN_TILE.into()),
        None if caps.software => return row_kernel(caps, shape, pass, operands),
        None => pick(caps, shape, pass, owners)?,
    };
    let spec = operands.spec(shape, pass, given);
    let composer = common(tiled(caps, spec, shape, pass, tile)?, shape);
    let composer = operands.place(composer, shape, pass);
    let composer = operands.dropout(composer, shape, pass);
    let composer = composer.module(shader!("lib/attention/tile"));
    let composer = match pass {
        AttentionPass::Forward => composer.module(shader!("05_attention_forward")),
        AttentionPass::Query => composer.module(shader!("10_attention_backward_query")),
        AttentionPass::KeyValue => {
            composer.module(shader!("lib/attention/key_value")).module(if kept {
                shader!("10_attention_backward_key_value_kept")
            } else {
                shader!("10_attention_backward_key_value")
            })
        }
    };
    let grid = Grid::RowsByX { rows: tile.rows, y: owners as u32 };
    let variant = tile.label() + if kept { ", scores kept" } else { "" };
    composer.finish(caps, &operands.bindings(shape, pass), grid, variant, reason)
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
    let composer = common(Composer::new(spec, size), shape).module(shader!("lib/flat"));
    let composer = operands.place(composer, shape, pass);
    let composer = operands.dropout(composer, shape, pass);
    let mut loads = vec![("query_of", "load_query"), ("key_of", "load_key")];
    loads.push(("value_of", "load_value"));
    let stores: &[_] = match pass {
        AttentionPass::Forward => &[("put_output", "store_output")],
        AttentionPass::Query => &[("put_d_query", "store_d_query")],
        AttentionPass::KeyValue => {
            &[("put_d_key", "store_d_key"), ("put_d_value", "store_d_value")]
        }
    };
    if pass != AttentionPass::Forward {
        loads.push(("d_output_of", "load_d_output"));
    }
    let vectors = shape.head_dim / 4;
    let composer = composer
        .written("head_module", &head_module(vectors))
        .written("head_access", &head_access(vectors, &loads, stores))
        .module(match pass {
            AttentionPass::Forward => shader!("05_attention_forward_row"),
            AttentionPass::Query => shader!("10_attention_backward_query_row"),
            AttentionPass::KeyValue => shader!("10_attention_backward_key_value_row"),
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

/// The kernel of [`KernelSpec::AttentionForward`].
pub(in crate::kernels) fn forward(
    caps: &Capabilities,
    shape: AttentionShape,
    cached: bool,
    tile: Option<AttentionTile>,
) -> Result<Kernel> {
    let operands = Operands::Rows { cached, owner: KeyValueOwner::Group, ends: 0, kept: false };
    attention_kernel(caps, shape, AttentionPass::Forward, operands, tile)
}

/// `attention_delta_backward`. Bindings: output, d_output, delta, step.
///
/// # Errors
/// `limit-exceeded` when not even one invocation fits.
pub fn attention_delta(caps: &Capabilities, shape: AttentionShape) -> Result<Kernel> {
    let place = |composer: Composer| {
        composer.module(shader!("lib/step")).module(shader!("lib/attention/delta_rows"))
    };
    let bindings = [read("output"), read("d_output"), read_write("delta"), uniform("step")];
    let spec = KernelSpec::AttentionDelta { shape };
    delta_kernel(caps, spec, shape, shape.heads, &bindings, place)
}

/// `attention_delta_backward` for `owners` heads (of all batch items).
pub(in crate::kernels) fn delta_kernel(
    caps: &Capabilities,
    spec: KernelSpec,
    shape: AttentionShape,
    owners: usize,
    bindings: &[Binding],
    place: impl Fn(Composer) -> Composer,
) -> Result<Kernel> {
    let size = workgroup_size(caps, 64, 1, spec.name())?;
    let composer =
        Composer::new(spec, size).size("HEADS", shape.heads).size("HEAD_DIM", shape.head_dim);
    place(composer).module(shader!("lib/flat")).module(shader!("10_attention_delta")).finish(
        caps,
        bindings,
        Grid::Flat { rows: 1, per_block: owners, per_group: size as usize },
        "flat",
        "one invocation per row and head",
    )
}

/// `attention_backward_query`. Bindings: qkv, d_output, lse, delta, documents, d_qkv, step.
///
/// # Errors
/// `limit-exceeded` when no tile fits.
pub fn attention_backward_query(caps: &Capabilities, shape: AttentionShape) -> Result<Kernel> {
    backward_query(caps, shape, false, None)
}

/// [`attention_backward_query`] with the tile given: for measurements and tests.
pub fn attention_backward_query_with_tile(
    caps: &Capabilities,
    shape: AttentionShape,
    tile: AttentionTile,
) -> Result<Kernel> {
    backward_query(caps, shape, false, Some(tile))
}

/// The kernel of [`KernelSpec::AttentionBackwardQuery`].
pub(in crate::kernels) fn backward_query(
    caps: &Capabilities,
    shape: AttentionShape,
    kept: bool,
    tile: Option<AttentionTile>,
) -> Result<Kernel> {
    let operands = Operands::Rows { cached: false, owner: KeyValueOwner::Group, ends: 0, kept };
    attention_kernel(caps, shape, AttentionPass::Query, operands, tile)
}

/// Workgroups that keep a [`GpuClass::LARGE`](crate::caps::GpuClass) busy: fewer, and each query head
/// gets its own.
const BUSY_GROUPS: usize = 256;

/// Who owns gradients of keys and values. Where long batches of small heads have tiles of 64 keys, more
/// of these are few.
pub fn key_value_owner(caps: &Capabilities, shape: AttentionShape) -> KeyValueOwner {
    let tall = attention_tiles(caps, shape, AttentionPass::KeyValue).contains(&TALL_TILE);
    let rows = if tall { TALL_TILE.rows } else { FULL_TILE.rows };
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
    backward_key_value(caps, shape, (owner, ends), false, None)
}

/// [`attention_backward_key_value`] with the tile given: for measurements and tests.
pub fn attention_backward_key_value_with_tile(
    caps: &Capabilities,
    shape: AttentionShape,
    owner: KeyValueOwner,
    ends: usize,
    tile: AttentionTile,
) -> Result<Kernel> {
    backward_key_value(caps, shape, (owner, ends), false, Some(tile))
}

/// The kernel of [`KernelSpec::AttentionBackwardKeyValue`].
pub(in crate::kernels) fn backward_key_value(
    caps: &Capabilities,
    shape: AttentionShape,
    (owner, ends): (KeyValueOwner, usize),
    kept: bool,
    tile: Option<AttentionTile>,
) -> Result<Kernel> {
    let operands = Operands::Rows { cached: false, owner, ends, kept };
    attention_kernel(caps, shape, AttentionPass::KeyValue, operands, tile)
}

/// `attention_group_sum`: adds up the parts of [`KeyValueOwner::Head`]. Bindings: parts, d_qkv,
/// step.
pub fn attention_group_sum(caps: &Capabilities, shape: AttentionShape) -> Result<Kernel> {
    let spec = KernelSpec::AttentionGroupSum { shape };
    let size = workgroup_size(caps, 64, 1, spec.name())?;
    Composer::new(spec, size)
        .size("HEADS", shape.heads)
        .size("MEMBERS", shape.heads / shape.kv_heads)
        .size("VECTORS", shape.head_dim / 4)
        .size("KV_VECTORS", shape.cache_stride() / 4)
        .size("STRIDE", shape.stride())
        .size("KEY_OFFSET", shape.key_offset())
        .module(shader!("lib/step"))
        .module(shader!("lib/flat"))
        .module(shader!("10_attention_group_sum"))
        .finish(
            caps,
            &[read("parts"), read_write("d_qkv"), uniform("step")],
            Grid::Flat { rows: 1, per_block: shape.cache_stride() / 4, per_group: size as usize },
            "flat",
            "one invocation per vector of four",
        )
}
