//! The linear family: `matmul`, `matmul_t`, `matmul_at` by tiles or directly, K split where that keeps a GPU busy.

use super::gate_gradient::{self, tile_gives_gate_gradient};
use super::gated::tile_gates;
use super::matrix::matrix_constants;
use super::sum::LinearSum;
use super::tile::{LinearPick, linear_tiles, pick, pick_for_reader, pick_parts};
use crate::caps::Capabilities;
use crate::error::{Error, Result};
use crate::format::{Element, WeightFormat, WriteMode};
use crate::kernels::compose::{Binding, Composer, Grid, Kernel, Spec, read, read_write, uniform};
use crate::kernels::limits::workgroup_size;
use crate::kernels::low_rank::LowRankShape;
use crate::kernels::modules::activation_module;
use crate::kernels::shape::{Output, PartialSums};
use crate::kernels::spec::{GIVEN_TILE, KernelSpec};
use crate::products::{Form, LinearShape, LinearTile};

impl Output {
    pub(super) fn write_mode(self) -> usize {
        let mode = if let Self::Mode(mode) = self { mode } else { WriteMode::Overwrite };
        mode.constant() as usize
    }

    /// What `#if` asks of what is added.
    pub(super) fn flags(self, composer: Composer) -> Composer {
        composer
            .when("RESIDUAL", matches!(self, Self::Residual | Self::BiasedResidual))
            .when("BIAS", matches!(self, Self::Bias | Self::BiasedResidual))
    }

    /// What is bound last, in this order.
    pub(super) fn added(self) -> &'static [Binding] {
        const BOTH: [Binding; 2] = [read("residual"), read("bias")];
        match self {
            Self::Mode(_) | Self::Gated(_) => &[],
            Self::Residual => &BOTH[..1],
            Self::Bias => &BOTH[1..],
            Self::BiasedResidual => &BOTH,
            Self::GateGradient(_) => &gate_gradient::BINDINGS,
        }
    }
}

/// In how many parts the product that is picked for a shape leaves its result: more than one where its K is split.
pub fn linear_parts(caps: &Capabilities, shape: &LinearShape) -> PartialSums {
    parts_of(pick(caps, shape).splits, shape)
}

/// [`linear_parts`] of a product of a prompt's rows, whose parts the kernel that reads them adds up.
pub fn linear_parts_for_reader(caps: &Capabilities, shape: &LinearShape) -> PartialSums {
    parts_of(pick_for_reader(caps, shape).splits, shape)
}

fn parts_of(splits: usize, shape: &LinearShape) -> PartialSums {
    match splits {
        1 => PartialSums::WHOLE,
        count => PartialSums { count, apart: shape.part_elements() as usize },
    }
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
        let Self { shape, splits, tile, .. } = *self;
        let pick = match tile {
            Some(tile) => LinearPick { tile, splits, reason: GIVEN_TILE.into() },
            None => pick_parts(caps, &shape, splits)?,
        };
        self.by(caps, pick, (*self).into(), None)
    }
}

/// A product whose sums have more terms: those of an adapter's products of low rank, z · Bᵀ of [`Form::MatmulT`] or
/// d_z · A of [`Form::Matmul`]. z and d_z are in f32. Bound after all else: these rows, and the matrices.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct AdaptedProduct {
    pub product: LinearProduct,
    /// N of the product is `inputs` of [`Form::Matmul`], and `outputs` of [`Form::MatmulT`].
    pub low: LowRankShape,
}

impl Spec for AdaptedProduct {
    fn name(&self) -> &'static str {
        self.product.name()
    }

    /// As that of the product by itself.
    fn kernel(&self, caps: &Capabilities) -> Result<Kernel> {
        let LinearProduct { shape, splits, tile, .. } = self.product;
        let pick = match tile {
            Some(tile) => LinearPick { tile, splits, reason: GIVEN_TILE.into() },
            None => pick_parts(caps, &shape, splits)?,
        };
        self.product.by(caps, pick, (*self).into(), Some(&self.low))
    }
}

/// Whether products of a shape can have more terms, whatever the tile.
pub fn linear_adapts(caps: &Capabilities, shape: &LinearShape, low: &LowRankShape) -> bool {
    let tiles = linear_tiles(caps, shape);
    tiles.into_iter().all(|tile| tile_adapts(shape, tile, low))
}

/// Whether the kernel of a tile can have more terms: rows are read by vectors, and all modules' short rows are there.
fn tile_adapts(shape: &LinearShape, tile: LinearTile, low: &LowRankShape) -> bool {
    let columns = match shape.form {
        Form::MatmulT => low.outputs,
        Form::Matmul => low.inputs,
        Form::MatmulAt => return false,
    };
    let packed = matches!(shape.b, WeightFormat::Int8 | WeightFormat::Int4);
    tile.splits()
        && shape.by_vectors()
        && !shape.padded
        && !packed
        && low.by_fours()
        && columns == shape.n
        && low.short == low.count * low.rank
}

impl LinearProduct {
    /// The product that is picked for a shape.
    pub fn picked(caps: &Capabilities, shape: LinearShape, output: Output) -> Self {
        Self { shape, output, splits: pick(caps, &shape).splits, tile: None }
    }

    const fn is_split(&self) -> bool {
        self.splits > 1
    }

    /// What adds up its parts, where K is split.
    pub fn sum(&self) -> Option<LinearSum> {
        let Self { shape, output, splits, .. } = *self;
        self.is_split().then_some(LinearSum { shape, output, splits })
    }

    /// What becomes of results. Partial sums are overwritten: what a product is added to is for who sums them.
    const fn target(&self) -> Output {
        if self.is_split() { Output::Mode(WriteMode::Overwrite) } else { self.output }
    }

    /// The element format of results: parts are in f32.
    const fn element(&self) -> Element {
        if self.is_split() { Element::F32 } else { self.shape.c }
    }

    /// Fails for what no kernel does.
    fn check(&self, tile: LinearTile) -> Result<()> {
        let (shape, most) = (&self.shape, u64::from(u32::MAX));
        let elements = shape.tokens as u64 * shape.a_stride.max(shape.c_stride) as u64;
        if shape.n == 0 || shape.k == 0 || elements > most {
            return Err(Error::limit("32-bit indexing", most, elements, self.name()));
        }
        let b_row = if shape.form == Form::MatmulT { shape.k } else { shape.n };
        let (vectors, split) = (shape.by_vectors(), self.is_split());
        let f16 = shape.b == WeightFormat::F16 && vectors;
        let matrix = matches!(tile, LinearTile::Matrix { .. });
        let gated = matches!(self.output, Output::Gated(_));
        let overwritten = gated || self.output == Output::Mode(WriteMode::Overwrite);
        let gradient = matches!(self.output, Output::GateGradient(_));
        let broken = if split && !(vectors && tile.splits()) {
            "only tiles of vectors can be summed in parts"
        } else if shape.b != WeightFormat::F32 && !(f16 || shape.b.packs(b_row)) {
            "only rows of whole groups, or in f16 of vectors, are read packed"
        } else if shape.a == Element::F16 && !(matrix && vectors) {
            "only products by matrices read their first operand in f16"
        } else if shape.c == Element::F16 && !(overwritten && vectors) {
            "only vectors that are overwritten lie in f16"
        } else if gradient && (split || !tile_gives_gate_gradient(shape, tile)) {
            "this product cannot give the gradients of gate and up"
        } else if gated && (split || !tile_gates(shape, tile)) {
            "this product cannot give a gate's result"
        } else {
            return Ok(());
        };
        Err(Error::internal(broken))
    }

    /// The kernel by a tile, of this product or of one with more terms.
    fn by(
        self,
        caps: &Capabilities,
        pick: LinearPick,
        spec: KernelSpec,
        low: Option<&LowRankShape>,
    ) -> Result<Kernel> {
        let LinearPick { tile, splits, reason } = pick;
        self.check(tile)?;
        let gated = matches!(self.output, Output::Gated(_));
        if low.is_some_and(|low| gated || !tile_adapts(&self.shape, tile, low)) {
            return Err(Error::internal("this product cannot have an adapter's terms"));
        }
        let size = match tile {
            LinearTile::Tiled { .. } | LinearTile::Matrix { .. } => {
                tile.invocations(caps.matrix_lanes())
            }
            LinearTile::Direct { .. } => workgroup_size(caps, 8, 1, self.name())?,
        };
        let composer = self.constants(caps, Composer::new(spec, size), tile)?;
        let composer = adapted(composer, (self.shape.form, tile), low);
        let mut bindings =
            vec![read("a"), read("b"), read_write("c"), uniform("step"), uniform("range")];
        bindings.extend(self.target().added());
        bindings.extend(tile.sizes());
        if low.is_some() {
            bindings.extend([read("short_rows"), read("low_rank")]);
        }
        let adapter = if low.is_some() { ", adapter" } else { "" };
        let parts = if self.is_split() { format!(", {splits} parts of K") } else { String::new() };
        self.modules(composer, tile).finish(
            caps,
            &bindings,
            self.grid(caps, tile, size)?,
            format!("{}, {}{parts}{adapter}", tile.label(), self.operands()),
            reason,
        )
    }

    /// The formats of operands and results, and what is computed from these, as the variant's name says it.
    fn operands(&self) -> String {
        let mut width = String::from(if self.shape.by_vectors() { "vec4" } else { "scalar" });
        if self.shape.a == Element::F16 {
            width += ", a in f16";
        }
        if self.shape.b != WeightFormat::F32 {
            width = format!("{width}, b in {}", self.shape.b.name());
        }
        if self.element() == Element::F16 {
            width += ", c in f16";
        }
        if matches!(self.target(), Output::GateGradient(_)) {
            width += ", gate's gradient fused";
        }
        if matches!(self.target(), Output::Gated(_)) {
            width += ", gate fused";
        }
        width
    }

    fn grid(&self, caps: &Capabilities, tile: LinearTile, size: u32) -> Result<Grid> {
        let shape = &self.shape;
        let grid = match tile {
            LinearTile::Tiled { bm, bn, .. } | LinearTile::Matrix { bm, bn, .. } => {
                Grid::RowsByY { rows: bm, x: (shape.n.div_ceil(bn) * self.splits) as u32 }
            }
            LinearTile::Direct { tm, tn } => {
                Grid::Flat { rows: tm, per_block: shape.n.div_ceil(tn), per_group: size as usize }
            }
        };
        if shape.form == Form::MatmulAt { grid.fixed(caps, shape.k) } else { Ok(grid) }
    }

    fn constants(
        &self,
        caps: &Capabilities,
        composer: Composer,
        tile: LinearTile,
    ) -> Result<Composer> {
        let shape = &self.shape;
        Ok(match tile {
            LinearTile::Tiled { bm, bn, bk, tm, tn } => {
                let size = composer.workgroup_size();
                let loads = |side: usize| side * bk / 4 / size;
                let [pad_a, pad_b] = LinearTile::pads(shape.form);
                let composer = if tile.unrolls_depth(shape.form) {
                    composer.unrolled("VECTORS_K", bk / 4)
                } else {
                    composer.size("VECTORS_K", bk / 4)
                };
                self.sizes(composer)
                    .when("B_UNITS", false)
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
                let results = (self.target(), self.element());
                matrix_constants(caps, self.sizes(composer), shape, results, tile)?
            }
            LinearTile::Direct { tm, tn } => self
                .modes(composer.open([shape.n, shape.k, shape.a_stride, shape.c_stride]))
                .when("B_UNITS", false)
                .size("TM", tm)
                .size("TN", tn),
        })
    }

    /// The sizes of a product that its text has.
    fn sizes(&self, composer: Composer) -> Composer {
        let shape = &self.shape;
        let b_stride = if shape.form == Form::MatmulT { shape.k } else { shape.n };
        let (c_stride, rows) =
            if self.is_split() { (shape.part_stride(), shape.m()) } else { (shape.c_stride, 0) };
        let composer = composer
            .size("N", shape.n)
            .size(if shape.form == Form::MatmulAt { "M" } else { "K" }, shape.k)
            .size("A_STRIDE", shape.a_stride)
            .size("A_INNER", shape.k)
            .size("B_STRIDE", b_stride)
            .size("B_INNER", b_stride)
            .size("C_STRIDE", c_stride)
            .size("SPLITS", self.splits)
            .size("PART_ROWS", rows);
        self.modes(composer)
    }

    /// Which operand has the columns of a range, and how results are written.
    fn modes(&self, composer: Composer) -> Composer {
        let rows_of_c = self.shape.form == Form::MatmulT && !self.is_split();
        composer
            .size("A_COLUMNS", usize::from(self.shape.form != Form::MatmulT))
            .size("C_COLUMNS", usize::from(rows_of_c))
            .size("WRITE_MODE", self.target().write_mode())
    }

    /// What the text asks about operands and results, and the kernel.
    fn modules(&self, composer: Composer, tile: LinearTile) -> Composer {
        let shape = &self.shape;
        // Matrices are added to one element at a time.
        let matrix = matches!(tile, LinearTile::Matrix { .. }) && self.element() == Element::F32;
        let vectors = shape.by_vectors() && !matrix;
        let composer = (self.target().flags(b_form(composer, shape)))
            .vectors(if vectors { 4 } else { 1 })
            .when("F16", self.element() == Element::F16)
            .when("ROWS_OF_FOURS", shape.by_vectors())
            .when("A_F16", shape.a == Element::F16)
            .when("GATE_GRADIENT", matches!(self.target(), Output::GateGradient(_)))
            .when("GATED", matches!(self.target(), Output::Gated(_)))
            .flag("OVER_TOKENS", shape.form == Form::MatmulAt)
            .flag("DOTS", shape.form == Form::MatmulT);
        let composer = match self.target() {
            Output::GateGradient(activation) | Output::Gated(activation) => {
                activation_module(composer, activation)
            }
            _ => composer,
        };
        match tile {
            LinearTile::Tiled { .. } => composer.module("03_matmul_tiled"),
            LinearTile::Matrix { .. } => composer.module("03_matmul_matrix"),
            LinearTile::Direct { tm, tn } => {
                let over_k = shape.form == Form::Matmul && !shape.k.is_multiple_of(4);
                (composer.unrolled("TM4", tm / 4).unrolled("TN4", tn / 4))
                    .when("CHECK_K", over_k)
                    .when("CHECK_N", !shape.n.is_multiple_of(tn))
                    .module("03_matmul_direct")
            }
        }
    }
}

/// Results of a subgroup that leave no registers for a second loop.
const FULL_REGISTERS: usize = 64 * 64;

/// Where the matrices of more terms are, and what these are added to.
fn adapted(
    composer: Composer,
    (form, tile): (Form, LinearTile),
    low: Option<&LowRankShape>,
) -> Composer {
    // The sums of a subgroup are then most of its registers: another loop over them took twice the time.
    let full = matches!(tile, LinearTile::Matrix { wm, wn, .. } if wm * wn >= FULL_REGISTERS);
    let composer = composer
        .when("LOW_RANK", low.is_some())
        .when("TERMS_IN_LOOP", low.is_some() && full)
        .when("TERMS_BEHIND", low.is_some() && !full);
    let Some(low) = low else { return composer };
    let of_b = form == Form::MatmulT;
    let modules = low.modules().iter();
    composer
        .unrolled("MODULES", low.count)
        .size("RANK", low.rank)
        .size("SHORT", low.short)
        .sizes("SHORT_FROM", modules.clone().map(|of| of.short))
        .sizes("LOW_FROM", modules.clone().map(|of| if of_b { of.column } else { 0 }))
        .sizes("LOW_WIDTHS", modules.clone().map(|of| if of_b { of.columns } else { low.inputs }))
        .sizes("LOW_AT", modules.map(|of| if of_b { of.b } else { of.a }))
}

/// The layout of B.
fn b_form(composer: Composer, shape: &LinearShape) -> Composer {
    let form = match shape.b {
        WeightFormat::F32 if shape.by_vectors() => "",
        WeightFormat::F32 => "B_SCALAR",
        WeightFormat::F16 => "B_F16",
        WeightFormat::Int8 => "B_INT8",
        WeightFormat::Int4 => "B_INT4",
    };
    let packed = matches!(shape.b, WeightFormat::Int8 | WeightFormat::Int4);
    let composer =
        composer.one_of(&["B_SCALAR", "B_F16", "B_INT8", "B_INT4"], form).when("B_PACKED", packed);
    if !packed {
        // Products of other shapes share the text.
        return composer;
    }
    composer.size("B_SCALES", 4 * shape.b.vectors(shape.n * shape.k))
}
