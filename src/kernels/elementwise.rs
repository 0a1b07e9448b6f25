//! Kernels in which each output element has one invocation: embedding, positions, RoPE, activations,
//! and small helpers.

use super::compose::{Binding, Composer, Grid, Kernel, read, read_write, uniform};
use super::limits::workgroup_size;
use super::modules::{UNIT, activation_module};
use super::shape::{ActivationWidth, Constant, Parts, RopeShape};
use super::spec::KernelSpec;
use crate::caps::Capabilities;
use crate::error::Result;
use crate::format::{Element, WeightFormat, WriteMode};

pub(super) fn composer(caps: &Capabilities, spec: KernelSpec) -> Result<Composer> {
    let size = workgroup_size(caps, 256, 1, spec.name())?;
    Ok(Composer::new(spec, size))
}

/// One invocation for each of `width` elements of a row.
pub(super) fn finish(
    composer: Composer,
    caps: &Capabilities,
    bindings: &[Binding],
    width: usize,
) -> Result<Kernel> {
    let reason = "one invocation per element, workgroup as large as the device allows up to 256";
    let grid = Grid::Flat { rows: 1, per_block: width, per_group: composer.workgroup_size() };
    composer.finish(caps, bindings, grid, "flat", reason)
}

/// One invocation for each of `count` elements, however many rows the batch has.
fn fixed(
    composer: Composer,
    caps: &Capabilities,
    bindings: &[Binding],
    count: usize,
) -> Result<Kernel> {
    let flat = Grid::Flat { rows: 1, per_block: count, per_group: composer.workgroup_size() };
    let reason = "one invocation per element, workgroup as large as the device allows up to 256";
    composer.finish(caps, bindings, flat.fixed(caps, 1)?, "flat", reason)
}

/// `embedding_forward` for vectors of `hidden` elements. Grid: `tokens · hidden` invocations. Bindings: tokens, weight,
/// output, step, range. A decoded row also leaves `rotated` angles, if these are not 0; then angles and table too.
pub fn embedding_forward(caps: &Capabilities, hidden: usize, rotated: usize) -> Result<Kernel> {
    let composer =
        composer(caps, KernelSpec::EmbeddingForward { hidden, rotated })?.size("HIDDEN", hidden);
    let composer = gathers(composer, rotated, hidden).module("01_embedding_forward");
    finish(composer, caps, &gathered("weight", rotated), hidden)
}

/// `embedding_packed_forward` for vectors of `hidden` elements, from a packed part of so many rows. Grid: an
/// invocation for each unit of a packed row. Bindings: tokens, packed and the others of [`embedding_forward`].
pub fn embedding_packed(
    caps: &Capabilities,
    (hidden, rows): (usize, usize),
    format: WeightFormat,
    rotated: usize,
) -> Result<Kernel> {
    let units = hidden / UNIT;
    let spec = KernelSpec::EmbeddingPacked { hidden, rows, format, rotated };
    let composer = gathers(composer(caps, spec)?.size("UNITS", units), rotated, units);
    let composer = format.module(composer, rows * hidden).module("01_embedding_packed");
    finish(composer, caps, &gathered("packed", rotated), units)
}

fn gathered(table: &'static str, rotated: usize) -> Vec<Binding> {
    let gathered =
        [read("tokens"), read(table), read_write("output"), uniform("step"), uniform("range")];
    let angles = [read_write("angles"), read("table")];
    [&gathered, &angles[..if rotated > 0 { 2 } else { 0 }]].concat()
}

/// The constants of what an embedding leaves beside its rows, where so many invocations have one.
fn gathers(composer: Composer, rotated: usize, invocations: usize) -> Composer {
    composer.when("ANGLES", rotated > 0).size("INVOCATIONS", invocations).size("ROTATED", rotated)
}

/// `embedding_backward` for vectors of `hidden` elements. Grid: `tokens · hidden` invocations.
pub fn embedding_backward(caps: &Capabilities, hidden: usize) -> Result<Kernel> {
    let composer = composer(caps, KernelSpec::EmbeddingBackward { hidden })?
        .size("HIDDEN", hidden)
        .module("01_embedding_backward");
    let bindings = [
        read("order"),
        read("tokens"),
        read("d_output"),
        read_write("d_weight"),
        uniform("step"),
        uniform("range"),
    ];
    finish(composer, caps, &bindings, hidden)
}

/// `position_forward` for vectors of `hidden` elements. Grid: `tokens · hidden` invocations.
pub fn position_forward(caps: &Capabilities, hidden: usize) -> Result<Kernel> {
    let composer = composer(caps, KernelSpec::PositionForward { hidden })?;
    let tensors = [read_write("x"), read("weight"), read("documents")];
    positions(composer, caps, hidden, tensors, "01_position_forward")
}

/// `position_backward` for vectors of `hidden` elements, of a batch whose documents' ends lie `ends`
/// elements behind their starts. Grid: `tokens · hidden` invocations.
pub fn position_backward(caps: &Capabilities, hidden: usize, ends: usize) -> Result<Kernel> {
    let spec = KernelSpec::PositionBackward { hidden, ends };
    let composer = composer(caps, spec)?.size("ENDS", ends);
    let tensors = [read("documents"), read("d_output"), read_write("d_weight")];
    positions(composer, caps, hidden, tensors, "01_position_backward")
}

fn positions(
    composer: Composer,
    caps: &Capabilities,
    hidden: usize,
    [first, second, third]: [Binding; 3],
    kernel: &'static str,
) -> Result<Kernel> {
    let composer = composer.size("HIDDEN", hidden).module(kernel);
    let bindings = [first, second, third, uniform("step"), uniform("range")];
    finish(composer, caps, &bindings, hidden)
}

/// `initialize_forward`: `count` initial weights. Bindings: weights, options, run.
pub fn initialize(caps: &Capabilities, count: usize) -> Result<Kernel> {
    let spec = KernelSpec::Initialize { count };
    let composer =
        Composer::new(spec, workgroup_size(caps, 256, 1, spec.name())?).module("00_initialize");
    let bindings = [read_write("weights"), uniform("options"), uniform("elements")];
    fixed(composer, caps, &bindings, count)
}

/// `zero_forward`: clears `count` elements on the first micro-step.
pub fn zero(caps: &Capabilities, count: usize) -> Result<Kernel> {
    let composer = composer(caps, KernelSpec::Zero { count })?.module("00_zero");
    fixed(composer, caps, &[read_write("data"), uniform("step")], count)
}

/// `copy_row_forward`: the batch's last row of `hidden` elements.
pub fn copy_row(caps: &Capabilities, hidden: usize) -> Result<Kernel> {
    let composer = composer(caps, KernelSpec::CopyRow { hidden })?
        .size("HIDDEN", hidden)
        .module("00_copy_row");
    let bindings = [read("input"), read_write("output"), uniform("step")];
    fixed(composer, caps, &bindings, hidden)
}

/// Sums that [`checksum`] leaves.
pub const CHECKSUM_LANES: usize = 4096;

/// `checksum_forward` of `count` words. Bindings: words, sums.
pub fn checksum(caps: &Capabilities, count: usize) -> Result<Kernel> {
    let spec = KernelSpec::Checksum { count };
    let composer = Composer::new(spec, workgroup_size(caps, 256, 1, spec.name())?)
        .size("COUNT", count)
        .size("LANES", CHECKSUM_LANES)
        .module("00_checksum");
    fixed(composer, caps, &[read("words"), read_write("sums")], CHECKSUM_LANES)
}

/// `scale_forward`: rows of `columns` elements times a factor, in place. Grid: `tokens · columns`
/// invocations.
pub fn scale(caps: &Capabilities, columns: usize, factor: f64) -> Result<Kernel> {
    let spec = KernelSpec::Scale { columns, factor: Constant(factor) };
    let composer = composer(caps, spec)?
        .size("COLUMNS", columns)
        .float("FACTOR", factor as f32)
        .module("00_scale");
    finish(composer, caps, &[read_write("rows"), uniform("step")], columns)
}

/// `dropout_forward`: rows of `columns` elements, left out at `rate`. Grid: an invocation for four elements
/// of a row. Bindings: input, output, step, range, and `residual` if it is added.
pub fn dropout(
    caps: &Capabilities,
    columns: usize,
    rate: f64,
    mode: WriteMode,
    residual: bool,
) -> Result<Kernel> {
    let blocks = columns.div_ceil(4);
    let spec = KernelSpec::Dropout { columns, rate: Constant(rate), mode, residual };
    let composer = composer(caps, spec)?
        .size("COLUMNS", columns)
        .size("ROW_BLOCKS", blocks)
        .size("THRESHOLD", dropout_threshold(rate))
        .size("WRITE_MODE", mode.constant() as usize)
        .float("SCALE", (1.0 / (1.0 - rate)) as f32)
        .when("RESIDUAL", residual)
        .module("00_dropout");
    let own = [read("input"), read_write("output"), uniform("step"), uniform("range")];
    let more: &[_] = if residual { &[read("residual")] } else { &[] };
    finish(composer, caps, &[&own, more].concat(), blocks)
}

/// What is left out has a random word below this.
pub(in crate::kernels) fn dropout_threshold(rate: f64) -> usize {
    (rate * f64::from(1 << 16) * f64::from(1 << 16)) as u32 as usize
}

/// The constants of a rotation of whole rows, in either direction.
fn rotation(
    caps: &Capabilities,
    shape: RopeShape,
    (forward, half): (bool, bool),
) -> Result<Composer> {
    let RopeShape { heads, head_dim, dims, stride } = shape;
    Ok(composer(caps, KernelSpec::Rope { shape, forward, half, parts: Parts::WHOLE })?
        .size("HEADS", heads)
        .size("HEAD_DIM", head_dim)
        .size("HALF", dims / 2)
        .size("STRIDE", stride)
        .float("DIRECTION", if forward { 1.0 } else { -1.0 }))
}

/// `rope_forward` or `rope_backward`. Grid: `tokens · heads · dims / 2` invocations.
pub fn rope(caps: &Capabilities, shape: RopeShape, forward: bool) -> Result<Kernel> {
    let composer = rotation(caps, shape, (forward, false))?.module("04_rope");
    let bindings = [read_write("qkv"), read("table"), read("documents"), uniform("step")];
    finish(composer, caps, &bindings, shape.heads * shape.dims / 2)
}

/// `rope_forward` of rows that lie in parts, where their shape [turns sums](RopeShape::turns_sums). Grid:
/// `tokens · stride / 8` invocations. Bindings: parts, table, documents, rows, step.
pub fn rope_of_parts(caps: &Capabilities, shape: RopeShape, parts: Parts) -> Result<Kernel> {
    let composer = composer(caps, KernelSpec::Rope { shape, forward: true, half: false, parts })?
        .unrolled("PARTS", parts.count)
        .size("PART_ROW", parts.apart / 4)
        .when("ROTATED", true)
        .module("04_rope_summed");
    let mut kernel = rotated_heads(composer, caps, shape)?;
    kernel.variant += &format!(", {} parts", parts.count);
    Ok(kernel)
}

/// Rows of heads that a kernel gathers from parts, with those of queries and keys rotated. Grid: `tokens · stride / 8`
/// invocations. Bindings: parts, table, documents, rows, step.
pub(super) fn rotated_heads(
    composer: Composer,
    caps: &Capabilities,
    shape: RopeShape,
) -> Result<Kernel> {
    debug_assert!(shape.turns_sums(), "{shape:?}");
    let RopeShape { heads, head_dim, stride, .. } = shape;
    let composer = composer
        .size("HEAD_DIM", head_dim)
        .size("VECTORS", head_dim / 4)
        .size("HALF", head_dim / 8)
        .size("ROW_HEADS", stride / head_dim)
        .size("ROTATED_HEADS", heads)
        .size("TABLE", 1);
    let bindings =
        [read("parts"), read("table"), read("documents"), read_write("rows"), uniform("step")];
    finish(composer, caps, &bindings, stride / 8)
}

/// Whether [`rope_halves`] turns heads of this shape.
pub const fn rope_has_halves(shape: RopeShape) -> bool {
    shape.dims.is_multiple_of(4) && shape.head_dim.is_multiple_of(4)
}

/// `rope_forward` or `rope_backward` into rows in f16. Grid: `tokens · stride / 4` invocations.
pub fn rope_halves(caps: &Capabilities, shape: RopeShape, forward: bool) -> Result<Kernel> {
    debug_assert!(rope_has_halves(shape), "{shape:?}");
    let composer = rotation(caps, shape, (forward, true))?;
    let composer = Element::F16.module(composer).module("04_rope_f16");
    let bindings =
        [read("qkv"), read("table"), read("documents"), read_write("rotated"), uniform("step")];
    finish(composer, caps, &bindings, shape.stride / 4)
}

fn with_activation(composer: Composer, shape: ActivationWidth) -> Composer {
    let lanes = shape.lanes();
    let composer = composer.size("WIDTH", shape.width).size("ROW", shape.invocations());
    activation_module(composer.vectors(lanes).when("F16", shape.half), shape.activation)
        .summed_parts(shape.parts, lanes)
}

/// `gated_activation_forward` or `activation_forward`. Grid: an invocation for each element, or for each four.
pub fn activation(caps: &Capabilities, shape: ActivationWidth) -> Result<Kernel> {
    debug_assert!(shape.by_quads() || !shape.half && shape.parts == Parts::WHOLE, "{shape:?}");
    let (kernel, input) = match shape.gated {
        true => ("06_gated_activation_forward", "gate_up"),
        false => ("06_activation_forward", "input"),
    };
    let composer = with_activation(composer(caps, KernelSpec::Activation(shape))?, shape);
    let mut bindings = vec![read(input), read_write("output"), uniform("step")];
    if shape.parts != Parts::WHOLE {
        bindings.push(read_write("whole"));
    }
    let kernel = finish(composer.module(kernel), caps, &bindings, shape.invocations())?;
    Ok(kernel.of_parts(shape.parts))
}

impl ActivationWidth {
    /// Whether an invocation has four elements. Then results may lie in f16, and what is read in parts.
    pub const fn by_quads(self) -> bool {
        self.gated && self.width.is_multiple_of(4)
    }

    /// Elements of an invocation.
    const fn lanes(self) -> usize {
        if self.by_quads() { 4 } else { 1 }
    }

    /// For a row.
    const fn invocations(self) -> usize {
        self.width / self.lanes()
    }
}

/// `gated_activation_backward` or `activation_backward`. Grid: an invocation for each element, or for each four.
pub fn activation_backward(caps: &Capabilities, shape: ActivationWidth) -> Result<Kernel> {
    debug_assert!(shape.by_quads() || !shape.half && shape.parts == Parts::WHOLE, "{shape:?}");
    let (kernel, [input, d_input]) = match shape.gated {
        true => ("09_gated_activation_backward", ["gate_up", "d_gate_up"]),
        false => ("09_activation_backward", ["input", "d_input"]),
    };
    let composer = with_activation(composer(caps, KernelSpec::ActivationBackward(shape))?, shape);
    let bindings =
        [read(input), read("d_output"), read_write(d_input), read_write("output"), uniform("step")];
    let kernel = finish(composer.module(kernel), caps, &bindings, shape.invocations())?;
    Ok(kernel.of_parts(shape.parts))
}
