//! The linear family: `matmul`, `matmul_t`, `matmul_at` by tiles or directly, K split where that
//! keeps a GPU busy.

use super::gate_gradient::{self, tile_gives_gate_gradient};
use super::matrix::matrix_constants;
use super::tile::{LinearPick, pick, pick_parts};
use crate::caps::Capabilities;
use crate::error::{Error, Result};
use crate::format::{Element, WeightFormat, WriteMode};
use crate::kernels::compose::{Binding, Composer, Grid, Kernel, Spec, read, read_write, uniform};
use crate::kernels::limits::workgroup_size;
use crate::kernels::modules::activation_module;
use crate::kernels::shape::{Output, Parts};
use crate::kernels::spec::GIVEN_TILE;
use crate::products::{Form, LinearShape, LinearTile};

impl Output {
    fn write_mode(self) -> usize {
        let mode = if let Self::Mode(mode) = self { mode } else { WriteMode::Overwrite };
        mode.constant() as usize
    }

    /// What is bound last, in this order.
    fn added(self) -> &'static [Binding] {
        const BOTH: [Binding; 2] = [read("residual"), read("bias")];
        match self {
            Self::Mode(_) => &[],
            Self::Residual => &BOTH[..1],
            Self::Bias => &BOTH[1..],
            Self::BiasedResidual => &BOTH,
            Self::GateGradient(_) => &gate_gradient::BINDINGS,
        }
    }
}

/// A product as it is dispatched: one kernel, or two where K is split.
#[derive(Clone, Debug)]
pub struct LinearKernels {
    /// Binds a, b, c, step, range, and, where K is not split, the residual, the bias or both, or those of a gate's
    /// gradient.
    pub product: Kernel,
    pub sum: Option<SumKernel>,
}

/// The second stage of a split product.
#[derive(Clone, Debug)]
pub struct SumKernel {
    /// Binds parts, c, step, range, and the residual, the bias or both.
    pub kernel: Kernel,
    /// Elements of the parts, which the product writes instead of c.
    pub elements: u64,
}

/// A product of the given shape.
///
/// # Errors
/// `limit-exceeded` when no form fits.
pub fn linear(caps: &Capabilities, shape: &LinearShape, output: Output) -> Result<LinearKernels> {
    whole(caps, shape, output, pick(caps, shape), None)
}

/// In how many parts the product that is picked for a shape leaves its result: more than one where its K is split.
pub fn linear_parts(caps: &Capabilities, shape: &LinearShape) -> Parts {
    match pick(caps, shape).splits {
        1 => Parts::WHOLE,
        count => Parts { count, apart: shape.part_elements() as usize },
    }
}

/// [`linear`] with the tile given: for measurements and tests. K may be split where rows are
/// [by vectors](LinearShape::by_vectors) and the tile is not direct.
pub fn linear_with_tile(
    caps: &Capabilities,
    shape: &LinearShape,
    output: Output,
    pick: LinearPick,
) -> Result<LinearKernels> {
    let given = Some(pick.tile);
    whole(caps, shape, output, LinearPick { reason: GIVEN_TILE.into(), ..pick }, given)
}

/// Both stages of a product.
fn whole(
    caps: &Capabilities,
    shape: &LinearShape,
    output: Output,
    pick: LinearPick,
    given: Option<LinearTile>,
) -> Result<LinearKernels> {
    let splits = pick.splits;
    let product = product(caps, shape, output, pick, given)?;
    let sum = if splits > 1 {
        let elements = splits as u64 * shape.part_elements();
        let kernel = LinearSum { shape: *shape, output, splits }.kernel(caps)?;
        Some(SumKernel { kernel, elements })
    } else {
        None
    };
    Ok(LinearKernels { product, sum })
}

/// A product. Where K is cut into `splits` > 1 parts it overwrites parts of `tokens` × N each (K × N for
/// [`Form::MatmulAt`]), one after the other, whatever `output` is: [`LinearSum`] adds them up.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct LinearProduct {
    pub shape: LinearShape,
    pub output: Output,
    pub splits: usize,
    pub tile: Option<LinearTile>,
}

impl Spec for LinearProduct {
    fn name(&self) -> &'static str {
        self.shape.form.name()
    }

    /// With the given tile, or with the best one for this number of parts of K.
    fn kernel(&self, caps: &Capabilities) -> Result<Kernel> {
        let Self { shape, output, splits, tile } = *self;
        let pick = match tile {
            Some(tile) => LinearPick { tile, splits, reason: GIVEN_TILE.into() },
            None => pick_parts(caps, &shape, splits)?,
        };
        product(caps, &shape, output, pick, tile)
    }
}

fn product(
    caps: &Capabilities,
    shape: &LinearShape,
    output: Output,
    pick: LinearPick,
    given: Option<LinearTile>,
) -> Result<Kernel> {
    let name = shape.form.name();
    let elements = shape.tokens as u64 * shape.a_stride.max(shape.c_stride) as u64;
    if shape.n == 0 || shape.k == 0 || elements > u64::from(u32::MAX) {
        return Err(Error::limit("32-bit indexing", u64::from(u32::MAX), elements, name));
    }
    let LinearPick { tile, splits, reason } = pick;
    if splits > 1 && !(shape.by_vectors() && tile.splits()) {
        return Err(Error::internal("only tiles of vectors can be summed in parts"));
    }
    let b_row = if shape.form == Form::MatmulT { shape.k } else { shape.n };
    let vectors = shape.b == WeightFormat::F16 && shape.by_vectors();
    if shape.b != WeightFormat::F32 && !(vectors || shape.b.packs(b_row)) {
        return Err(Error::internal(
            "only rows of whole groups, or in f16 of vectors, are read packed",
        ));
    }
    let matrix = matches!(tile, LinearTile::Matrix { .. });
    if shape.a == Element::F16 && !(matrix && shape.by_vectors()) {
        return Err(Error::internal("only products by matrices read their first operand in f16"));
    }
    let overwritten = matches!(output, Output::Mode(WriteMode::Overwrite));
    if shape.c == Element::F16 && !(overwritten && shape.by_vectors()) {
        return Err(Error::internal("only vectors that are overwritten lie in f16"));
    }
    let gradient = matches!(output, Output::GateGradient(_));
    if gradient && (splits > 1 || !tile_gives_gate_gradient(shape, tile)) {
        return Err(Error::internal("this product cannot give the gradients of gate and up"));
    }
    let size = match tile {
        LinearTile::Tiled { .. } | LinearTile::Matrix { .. } => {
            tile.invocations(caps.matrix_lanes())
        }
        LinearTile::Direct { .. } => workgroup_size(caps, 8, 1, name)?,
    };
    let target = Destination { output, splits };
    let spec = LinearProduct { shape: *shape, output, splits, tile: given };
    let composer = constants(caps, Composer::new(spec, size), shape, target, tile)?;
    let composer = modules(composer, shape, target, tile);
    let mut bindings =
        vec![read("a"), read("b"), read_write("c"), uniform("step"), uniform("range")];
    bindings.extend(target.output().added());
    bindings.extend(tile.sizes());
    let parts = if splits > 1 { format!(", {splits} parts of K") } else { String::new() };
    composer.finish(
        caps,
        &bindings,
        grid(caps, shape, tile, splits, size)?,
        format!("{}, {}{parts}", tile.label(), operands(shape, target)),
        reason,
    )
}

/// How operands and results lie, and what is computed from these, as the variant's name says it.
fn operands(shape: &LinearShape, target: Destination) -> String {
    let mut width = String::from(if shape.by_vectors() { "vec4" } else { "scalar" });
    if shape.a == Element::F16 {
        width += ", a in f16";
    }
    if shape.b != WeightFormat::F32 {
        width = format!("{width}, b in {}", shape.b.name());
    }
    if target.element(shape) == Element::F16 {
        width += ", c in f16";
    }
    if matches!(target.output(), Output::GateGradient(_)) {
        width += ", gate's gradient fused";
    }
    width
}

/// Where a product's results go: what [`Output`] says, or parts of their own.
#[derive(Clone, Copy)]
struct Destination {
    output: Output,
    splits: usize,
}

impl Destination {
    fn split(self) -> bool {
        self.splits > 1
    }

    /// Parts are overwritten: what a product is added to is for who sums them.
    fn output(self) -> Output {
        if self.split() { Output::Mode(WriteMode::Overwrite) } else { self.output }
    }

    /// How results lie: parts are in f32.
    fn element(self, shape: &LinearShape) -> Element {
        if self.split() { Element::F32 } else { shape.c }
    }
}

/// Adds up what [`LinearProduct`] has left in parts.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct LinearSum {
    pub shape: LinearShape,
    pub output: Output,
    pub splits: usize,
}

impl Spec for LinearSum {
    fn name(&self) -> &'static str {
        "linear_sum"
    }

    fn kernel(&self, caps: &Capabilities) -> Result<Kernel> {
        let Self { shape, output, splits } = *self;
        let size = workgroup_size(caps, 256, 1, self.name())?;
        let fixed_rows = shape.form == Form::MatmulAt;
        let mut bindings = vec![read("parts"), read_write("c"), uniform("step"), uniform("range")];
        bindings.extend(output.added());
        let composer = Composer::new(*self, size)
            .size("N", shape.part_stride())
            .size("SPLITS", splits)
            .size("PART_ROWS", shape.m())
            .size("FIXED_ROWS", if fixed_rows { shape.k } else { 0 })
            .size("C_STRIDE", shape.c_stride)
            .size("C_COLUMNS", usize::from(shape.form == Form::MatmulT))
            .size("WRITE_MODE", output.write_mode())
            .vectors(4)
            .when("F16", shape.c == Element::F16);
        let composer = added(composer, output, 4).module("03_linear_sum");
        let flat =
            Grid::Flat { rows: 1, per_block: shape.part_stride() / 4, per_group: size as usize };
        let grid = if fixed_rows { flat.fixed(caps, shape.k)? } else { flat };
        composer.finish(
            caps,
            &bindings,
            grid,
            format!("{splits} parts, vec4"),
            "the product before it was split along K",
        )
    }
}

fn grid(
    caps: &Capabilities,
    shape: &LinearShape,
    tile: LinearTile,
    splits: usize,
    size: u32,
) -> Result<Grid> {
    let grid = match tile {
        LinearTile::Tiled { bm, bn, .. } | LinearTile::Matrix { bm, bn, .. } => {
            Grid::RowsByY { rows: bm, x: (shape.n.div_ceil(bn) * splits) as u32 }
        }
        LinearTile::Direct { tm, tn } => {
            Grid::Flat { rows: tm, per_block: shape.n.div_ceil(tn), per_group: size as usize }
        }
    };
    if shape.form == Form::MatmulAt { grid.fixed(caps, shape.k) } else { Ok(grid) }
}

fn constants(
    caps: &Capabilities,
    composer: Composer,
    shape: &LinearShape,
    target: Destination,
    tile: LinearTile,
) -> Result<Composer> {
    Ok(match tile {
        LinearTile::Tiled { bm, bn, bk, tm, tn } => {
            let composer = sizes(composer, shape, target);
            let size = composer.workgroup_size();
            let loads = |side: usize| side * bk / 4 / size;
            let [pad_a, pad_b] = LinearTile::pads(shape.form);
            let composer = if tile.unrolls_depth(shape.form) {
                composer.unrolled("VECTORS_K", bk / 4)
            } else {
                composer.size("VECTORS_K", bk / 4)
            };
            split_constants(composer, shape, target)
                .size("BM", bm)
                .size("BN", bn)
                .size("BK", bk)
                .flag("WALKS", shape.by_vectors() && tile.walks(shape.form))
                .size("PAD_A", pad_a)
                .size("PAD_B", pad_b)
                .unrolled("TM", tm)
                .size("TN", tn)
                .unrolled("LOADS_A", loads(bm))
                .unrolled("LOADS_B", loads(bn))
                .unrolled("COMPONENTS", 4)
                .unrolled("LEFT_VECTORS", tm / 4)
                .unrolled("RIGHT_VECTORS", tn / 4)
        }
        LinearTile::Matrix { .. } => {
            let composer = split_constants(sizes(composer, shape, target), shape, target);
            matrix_constants(caps, composer, shape, (target.output(), target.element(shape)), tile)?
        }
        LinearTile::Direct { tm, tn } => {
            let open = composer.open([shape.n, shape.k, shape.a_stride, shape.c_stride]);
            modes(open, shape, target)
                .flag("DOTS", shape.form == Form::MatmulT)
                .flag("OVER_TOKENS", shape.form == Form::MatmulAt)
                .size("TM", tm)
                .size("TN", tn)
        }
    })
}

/// The sizes of a product that its text has.
fn sizes(composer: Composer, shape: &LinearShape, target: Destination) -> Composer {
    let b_stride = if shape.form == Form::MatmulT { shape.k } else { shape.n };
    let composer = composer
        .size("N", shape.n)
        .size(if shape.form == Form::MatmulAt { "M" } else { "K" }, shape.k)
        .size("A_STRIDE", shape.a_stride)
        .size("A_INNER", shape.k)
        .size("B_STRIDE", b_stride)
        .size("B_INNER", b_stride)
        .size("C_STRIDE", if target.split() { shape.part_stride() } else { shape.c_stride });
    modes(composer, shape, target)
}

/// Which operand has the columns of a range, and how results are written.
fn modes(composer: Composer, shape: &LinearShape, target: Destination) -> Composer {
    let rows_of_c = shape.form == Form::MatmulT && !target.split();
    composer
        .size("A_COLUMNS", usize::from(shape.form != Form::MatmulT))
        .size("C_COLUMNS", usize::from(rows_of_c))
        .size("WRITE_MODE", target.output().write_mode())
}

fn split_constants(composer: Composer, shape: &LinearShape, target: Destination) -> Composer {
    composer
        .size("SPLITS", target.splits)
        .size("PART_ROWS", if target.split() { shape.m() } else { 0 })
}

/// What a product is added to, whose bindings begin at `first`.
fn added(composer: Composer, output: Output, first: usize) -> Composer {
    let residual = matches!(output, Output::Residual | Output::BiasedResidual);
    composer
        .when("RESIDUAL", residual)
        .when("BIAS", matches!(output, Output::Bias | Output::BiasedResidual))
        .size("RESIDUAL_BINDING", first)
        .size("BIAS_BINDING", first + usize::from(residual))
}

/// How B lies.
fn b_form(composer: Composer, shape: &LinearShape) -> Composer {
    let form = match shape.b {
        WeightFormat::F32 if shape.by_vectors() => "",
        WeightFormat::F32 => "B_SCALAR",
        WeightFormat::F16 => "B_F16",
        WeightFormat::Int8 => "B_INT8",
        WeightFormat::Int4 => "B_INT4",
    };
    let composer = composer.one_of(&["B_SCALAR", "B_F16", "B_INT8", "B_INT4"], form);
    if !matches!(shape.b, WeightFormat::Int8 | WeightFormat::Int4) {
        // Products of other shapes share the text.
        return composer;
    }
    composer.size("B_SCALES", 4 * shape.b.vectors(shape.n * shape.k))
}

/// What the text asks about operands and results, and the kernel.
fn modules(
    composer: Composer,
    shape: &LinearShape,
    target: Destination,
    tile: LinearTile,
) -> Composer {
    let matrix = matches!(tile, LinearTile::Matrix { .. });
    // Matrices are added to one element at a time.
    let vectors = shape.by_vectors() && !matrix;
    let composer = added(b_form(composer, shape), target.output(), 5)
        .vectors(if vectors { 4 } else { 1 })
        .when("F16", target.element(shape) == Element::F16)
        .when("ROWS_OF_FOURS", shape.by_vectors())
        .when("A_F16", shape.a == Element::F16)
        .when("GATE_GRADIENT", matches!(target.output(), Output::GateGradient(_)))
        .when("OVER_TOKENS", shape.form == Form::MatmulAt)
        .when("DOTS", shape.form == Form::MatmulT);
    let composer = match target.output() {
        Output::GateGradient(activation) => activation_module(composer, activation),
        _ => composer,
    };
    match tile {
        LinearTile::Tiled { .. } => composer.module("03_matmul_tiled"),
        LinearTile::Matrix { .. } => composer.module("03_matmul_matrix"),
        LinearTile::Direct { tm, tn } => {
            let over_k = shape.form == Form::Matmul && !shape.k.is_multiple_of(4);
            (composer.unrolled("TM4", tm / 4).unrolled("TN4", tn / 4))
                .size("SIZES", 5 + target.output().added().len())
                .when("CHECK_K", over_k)
                .when("CHECK_N", !shape.n.is_multiple_of(tn))
                .module("03_matmul_direct")
        }
    }
}
