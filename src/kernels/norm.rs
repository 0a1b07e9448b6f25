//! RMSNorm and LayerNorm, forward and backward.

use super::compose::{Binding, Composer, Grid, Kernel, read, read_write, uniform};
use super::limits::{check_storage, elements, reduction, row_workgroup, variant, workgroup_size};
use super::shape::{AttentionShape, Constant, NormForm, NormTerms, Parts, SummedWeights};
use super::spec::KernelSpec;
use crate::caps::Capabilities;
use crate::error::{Error, Result};
use crate::format::WriteMode;

/// Rows that one workgroup of `rms_norm_backward` or `layer_norm_backward` folds into one partial weight gradient: as many
/// as leave about `BLOCKS` workgroups, since it works on one row after the other.
pub fn norm_rows(caps: &Capabilities, tokens: usize) -> usize {
    if caps.software {
        8
    } else {
        let blocks = caps.class().workgroups(BLOCKS);
        (tokens / blocks).next_power_of_two().clamp(1, 16)
    }
}

/// Workgroups of one row each that occupy a [`GpuClass::LARGE`](crate::caps::GpuClass). On an H200, 4,096
/// rows of 768 took 71 µs in 256 workgroups of sixteen rows, and 31 in 1,024 of four.
const BLOCKS: usize = 1024;

/// Most elements of a row that an invocation keeps in registers. Its loads then do not wait for each other, nor for a
/// store.
const MOST_KEPT: usize = 24;

/// A row of a norm, and how it is read.
#[derive(Clone, Copy)]
struct Row {
    hidden: usize,
    /// Elements of a load.
    lanes: usize,
}

impl Row {
    /// On an H200 the backward pass over 4,096 rows of 768 takes 9 µs by fours, and 19 by elements.
    fn new(hidden: usize) -> Self {
        Self { hidden, lanes: elements(hidden) }
    }

    const fn vectors(self) -> usize {
        self.hidden / self.lanes
    }

    /// Adds the row's sizes, and how much of it an invocation owns and keeps (LayerNorm keeps nothing).
    fn sizes(self, caps: &Capabilities, composer: Composer) -> Composer {
        let columns = self.vectors().div_ceil(composer.workgroup_size());
        let composer = composer.vectors(self.lanes);
        let composer = composer.size("HIDDEN", self.hidden).size("ROW", self.vectors());
        if caps.software || columns * self.lanes > MOST_KEPT {
            composer.size("COLUMNS", columns).size("KEPT", 1)
        } else {
            composer.unrolled("COLUMNS", columns).size("KEPT", columns)
        }
    }
}

/// `rms_norm_forward` over rows of `hidden` elements. Grid: one workgroup per row.
///
/// # Errors
/// `internal` for results in f16 of rows that are no multiple of 4, and for a residual with results in f16 or with parts.
pub fn rms_norm_forward(
    caps: &Capabilities,
    hidden: usize,
    terms: NormTerms,
    form: NormForm,
) -> Result<Kernel> {
    let NormForm { residual, half, summed } = form;
    let (row, sums) = (Row::new(hidden), summed != Parts::WHOLE);
    if residual && (half || sums) || half && row.lanes == 1 {
        return Err(Error::internal(format!("no norm of {hidden} has the form {form:?}")));
    }
    let mut added = vec![];
    if residual {
        added.push(read("residual"));
    }
    if sums {
        added.extend([read("before"), read_write("stream")]);
    }
    let spec = KernelSpec::RmsNormForward { hidden, terms, form };
    let flags = |composer: Composer| {
        let composer = composer.when("RESIDUAL", residual).when("F16", half);
        composer.when("SHIFTED", terms.shifted).summed_parts(summed, row.lanes)
    };
    let kernel =
        forward(caps, spec, (row, terms.epsilon.0), (&flags, "02_rms_norm_forward"), added)?;
    let mut kernel = kernel.of_parts(summed);
    for (is, what) in [(residual, ", residual"), (half, ", in f16")] {
        if is {
            kernel.variant += what;
        }
    }
    Ok(kernel)
}

/// `layer_norm_forward`, as [`rms_norm_forward`].
pub fn layer_norm_forward(caps: &Capabilities, hidden: usize, epsilon: f64) -> Result<Kernel> {
    let spec = KernelSpec::LayerNormForward { hidden, epsilon: Constant(epsilon) };
    let row = Row::new(hidden);
    forward(caps, spec, (row, epsilon), (&|composer| composer, "02_layer_norm_forward"), vec![])
}

/// `added` is bound last.
fn forward(
    caps: &Capabilities,
    spec: KernelSpec,
    (row, epsilon): (Row, f64),
    (flags, kernel): (&dyn Fn(Composer) -> Composer, &'static str),
    added: Vec<Binding>,
) -> Result<Kernel> {
    let (subgroups, why) = reduction(caps);
    let size = row_workgroup(caps, row.vectors(), spec.name())?;
    let grid = Grid::Flat { rows: 1, per_block: 1, per_group: 1 };
    let mut bindings = vec![read("x"), read("weight"), read_write("y"), uniform("step")];
    bindings.extend(added);
    let composer = row
        .sizes(caps, Composer::new(spec, size))
        .float("EPSILON", epsilon as f32)
        .reduction(subgroups);
    flags(composer).module(kernel).finish(caps, &bindings, grid, variant(subgroups), why)
}

/// `rms_norm_backward` over rows of `hidden` elements; `mode` says how `d_x` is written, and `d_y` lies in `parts`.
/// Grid: one workgroup for `rows` rows, [`norm_rows`] in a plan.
pub fn rms_norm_backward(
    caps: &Capabilities,
    hidden: usize,
    terms: NormTerms,
    mode: WriteMode,
    (rows, parts): (usize, Parts),
) -> Result<Kernel> {
    let spec = KernelSpec::RmsNormBackward { hidden, terms, mode, rows, parts };
    let row = Row::new(hidden);
    let flags =
        |composer: Composer| composer.when("SHIFTED", terms.shifted).summed_parts(parts, row.lanes);
    let kernel = (&flags as &dyn Fn(Composer) -> Composer, "02_rms_norm_backward");
    Ok(backward(caps, spec, (row, terms.epsilon.0), (mode, rows), kernel)?.of_parts(parts))
}

/// `layer_norm_backward`, as [`rms_norm_backward`].
pub fn layer_norm_backward(
    caps: &Capabilities,
    hidden: usize,
    epsilon: f64,
    mode: WriteMode,
    rows: usize,
) -> Result<Kernel> {
    let spec = KernelSpec::LayerNormBackward { hidden, epsilon: Constant(epsilon), mode, rows };
    let row = Row::new(hidden);
    backward(
        caps,
        spec,
        (row, epsilon),
        (mode, rows),
        (&|composer| composer, "02_layer_norm_backward"),
    )
}

fn backward(
    caps: &Capabilities,
    spec: KernelSpec,
    (row, epsilon): (Row, f64),
    (mode, rows): (WriteMode, usize),
    (flags, kernel): (&dyn Fn(Composer) -> Composer, &'static str),
) -> Result<Kernel> {
    let (subgroups, why) = reduction(caps);
    let size = row_workgroup(caps, row.vectors(), spec.name())?;
    let grid = Grid::Flat { rows, per_block: 1, per_group: 1 };
    let bindings = [
        read("x"),
        read("weight"),
        read("d_y"),
        read_write("d_x"),
        read_write("partial_sums"),
        uniform("step"),
    ];
    let composer = row
        .sizes(caps, Composer::new(spec, size))
        .size("ROWS", rows)
        .size("WRITE_MODE", mode.constant() as usize)
        .float("EPSILON", epsilon as f32)
        .reduction(subgroups);
    flags(composer).module(kernel).finish(caps, &bindings, grid, variant(subgroups), why)
}

/// `head_norm_forward` over the query and key heads of rows of `qkv`. Grid: one workgroup per head of a
/// row, values' among them.
pub fn head_norm_forward(
    caps: &Capabilities,
    shape: AttentionShape,
    terms: NormTerms,
) -> Result<Kernel> {
    let spec = KernelSpec::HeadNormForward { shape, terms };
    let (subgroups, why) = reduction(caps);
    let size = row_workgroup(caps, shape.head_dim, spec.name())?;
    let heads = shape.stride() / shape.head_dim;
    let grid = Grid::Flat { rows: 1, per_block: heads, per_group: 1 };
    head_norm(spec, size, shape, terms)
        .size("ROW_HEADS", heads)
        .reduction(subgroups)
        .module("02_head_norm_forward")
        .finish(
            caps,
            &[read("x"), read("weight"), read_write("y"), uniform("step")],
            grid,
            variant(subgroups),
            why,
        )
}

/// `head_norm_backward`, in place on the gradients of rows of `qkv`. Grid: one workgroup per `rows`
/// rows, [`norm_rows`] in a plan.
pub fn head_norm_backward(
    caps: &Capabilities,
    shape: AttentionShape,
    terms: NormTerms,
    rows: usize,
) -> Result<Kernel> {
    let spec = KernelSpec::HeadNormBackward { shape, terms, rows };
    let (subgroups, why) = reduction(caps);
    let size = row_workgroup(caps, shape.head_dim, spec.name())?;
    let grid = Grid::Flat { rows, per_block: 1, per_group: 1 };
    head_norm(spec, size, shape, terms)
        .size("ROWS", rows)
        .size("COLUMNS", shape.head_dim.div_ceil(size as usize))
        .reduction(subgroups)
        .module("02_head_norm_backward")
        .finish(
            caps,
            &[
                read("x"),
                read("weight"),
                read_write("d"),
                read_write("partial_sums"),
                uniform("step"),
            ],
            grid,
            variant(subgroups),
            why,
        )
}

fn head_norm(spec: KernelSpec, size: u32, shape: AttentionShape, terms: NormTerms) -> Composer {
    Composer::new(spec, size)
        .size("HEADS", shape.heads)
        .size("KV_HEADS", shape.kv_heads)
        .size("HEAD_DIM", shape.head_dim)
        .size("STRIDE", shape.stride())
        .float("EPSILON", terms.epsilon.0 as f32)
        .vectors(1)
        .when("SHIFTED", terms.shifted)
}

/// `column_sum_forward`: adds up the partial gradients of `rows` rows each, of one weight or several. Grid: a
/// workgroup for neighbouring columns.
pub fn column_sum(
    caps: &Capabilities,
    hidden: usize,
    rows: usize,
    weights: SummedWeights,
) -> Result<Kernel> {
    let spec = KernelSpec::ColumnSum { hidden, rows, weights };
    let name = spec.name();
    let (most_lanes, wanted, loads) = if caps.software { (1, 64, 1) } else { (32, 256, 4) };
    let size = workgroup_size(caps, wanted, 1, name)?;
    check_storage(caps, [4 * size], name)?;
    let lanes = most_lanes.min(size as usize);
    let columns = weights.count * hidden;
    let flat = Grid::Flat { rows: 1, per_block: columns, per_group: size as usize / lanes };
    Composer::new(spec, size)
        .size("HIDDEN", hidden)
        .size("ROWS", rows)
        .size("LANES", lanes)
        .unrolled("LOADS", loads)
        .size("WEIGHTS", weights.count)
        .size("PARTIAL_STRIDE", weights.partials)
        .size("OUTPUT_STRIDE", weights.outputs)
        .size("WRITE_MODE", WriteMode::AddAfterFirst.constant() as usize)
        .module("02_column_sum")
        .finish(
            caps,
            &[read("partial_sums"), read_write("output"), uniform("step")],
            flat.fixed(caps, 1)?,
            format!("{lanes} lanes per column"),
            "a column's blocks are read by several invocations at a time",
        )
}
