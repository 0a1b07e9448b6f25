//! A LoRA adapter's products of low rank: short rows, what they add to wide rows, and the gradients of both. One dispatch
//! does it for all modules that read the same rows. A sum over long rows is divided among the invocations of a workgroup,
//! so that no other dispatch has to add up its parts.

#[cfg(feature = "testing")]
pub(crate) mod cases;
#[cfg(feature = "testing")]
pub(crate) mod twin;

use super::compose::{Composer, Grid, Kernel, Spec, read, read_write, uniform};
use super::limits::{check_storage, workgroup_size};
use super::shape::Constant;
use crate::arch::LowRankGroup;
use crate::caps::Capabilities;
use crate::error::Result;
use crate::format::{Element, WriteMode};

/// A module of a group, or a part of its matrices.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct LowRankModule {
    /// Its first column of the short rows.
    pub short: usize,
    /// Its first column of the wide rows y, and how many it has.
    pub column: usize,
    pub columns: usize,
    /// Elements from the beginning of what is bound to A, `[rank, inputs]`, and to B, `[columns, rank]`.
    pub a: usize,
    pub b: usize,
}

/// Modules that read rows of `inputs` elements, and add to some columns of rows of `outputs` elements. Of the short rows
/// between them, of `short` elements, each has `rank` columns.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct LowRankShape {
    pub rank: usize,
    pub inputs: usize,
    pub outputs: usize,
    pub short: usize,
    /// The first `count` of `modules`.
    pub count: usize,
    pub modules: [LowRankModule; LowRankGroup::MOST],
}

impl LowRankShape {
    pub fn modules(&self) -> &[LowRankModule] {
        &self.modules[..self.count]
    }

    /// Whether all rows and columns are of fours, so that they are read by vectors.
    pub fn by_fours(&self) -> bool {
        let fours = |size: usize| size.is_multiple_of(4);
        let places = |of: &LowRankModule| [of.short, of.column, of.columns, of.a, of.b];
        let module = |of: &LowRankModule| places(of).into_iter().all(fours);
        [self.rank, self.inputs, self.outputs, self.short].into_iter().all(fours)
            && self.modules().iter().all(module)
    }

    /// Elements of all modules' A, or of their B.
    fn elements(&self, side: LowRankSide) -> usize {
        match side {
            LowRankSide::A => self.count * self.rank * self.inputs,
            LowRankSide::B => self.modules().iter().map(|of| of.columns * self.rank).sum(),
        }
    }
}

/// Which of a module's two matrices.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum LowRankSide {
    A,
    B,
}

/// Rows times a matrix of each module: with A, x → z or d_z → d_x; with B, z → y or d_y → d_z.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct LowRankProduct {
    pub shape: LowRankShape,
    pub side: LowRankSide,
    /// The rows are gradients, and the matrix is not transposed.
    pub backward: bool,
    /// Factor on the product.
    pub scale: Constant,
    pub mode: WriteMode,
    /// The format of the rows. f16 only where [`LowRankShape::by_fours`].
    pub rows: Element,
}

/// The product with one matrix: of `depth` columns of the rows, to `width` columns of the result.
#[derive(Clone, Copy)]
struct Term {
    from: usize,
    depth: usize,
    to: usize,
    width: usize,
    /// Where the matrix is.
    at: usize,
}

/// Most invocations that share a sum, and the elements of each that make it worth one more barrier.
const MOST_SLICES: usize = 64;
const LEAST_OF_SLICE: usize = 32;

impl LowRankProduct {
    /// Whether results are short rows.
    fn shortens(&self) -> bool {
        (self.side == LowRankSide::A) != self.backward
    }

    fn terms(&self) -> impl Iterator<Item = Term> {
        let Self { shape: LowRankShape { rank, inputs, .. }, side, .. } = *self;
        let shortens = self.shortens();
        self.shape.modules().iter().map(move |of| {
            let short = (of.short, rank);
            let (long, at) = match side {
                LowRankSide::A => ((0, inputs), of.a),
                LowRankSide::B => ((of.column, of.columns), of.b),
            };
            let [from, to] = if shortens { [long, short] } else { [short, long] };
            Term { from: from.0, depth: from.1, to: to.0, width: to.1, at }
        })
    }

    /// Whether the results of all modules are added up.
    fn sums_modules(&self) -> bool {
        self.side == LowRankSide::A && self.backward
    }

    /// Elements of a row that is read, and of one that is written.
    fn strides(&self) -> [usize; 2] {
        let LowRankShape { inputs, outputs, .. } = self.shape;
        let long = if self.side == LowRankSide::A { inputs } else { outputs };
        let short = self.shape.short;
        if self.shortens() { [long, short] } else { [short, long] }
    }

    /// Multiplications with additions of a row.
    pub fn multiplies(&self) -> usize {
        self.shape.elements(self.side)
    }
}

/// Grid: `SHARED_BY` invocations for each 4×4 results, columns fastest.
impl Spec for LowRankProduct {
    fn name(&self) -> &'static str {
        if self.backward { "low_rank_backward" } else { "low_rank_forward" }
    }

    fn kernel(&self, caps: &Capabilities) -> Result<Kernel> {
        let Self { shape, side, scale: Constant(scale), mode, rows, .. } = *self;
        let size = workgroup_size(caps, 256, 1, self.name())?;
        let terms: Vec<Term> = self.terms().collect();
        let depth = terms.iter().map(|term| term.depth).max().unwrap_or(1);
        // A CPU pays for barriers, and its compilers for invocations that have one.
        let most = if caps.software { 1 } else { MOST_SLICES.min(size as usize) };
        let slices = 1 << (depth / LEAST_OF_SLICE).clamp(1, most).ilog2();
        if slices > 1 {
            check_storage(caps, [64 * size], self.name())?;
        }
        let places = if self.sums_modules() { &terms[..1] } else { &terms };
        let mut blocks = 0;
        let firsts: Vec<usize> = places
            .iter()
            .map(|place| {
                let first = blocks;
                blocks += place.width.div_ceil(4);
                first
            })
            .collect();
        let by_fours = shape.by_fours();
        let [row, result] = self.strides();
        let per_group = size as usize / slices;
        let form = if by_fours { "vec4" } else { "scalar" };
        let half = if rows == Element::F16 { ", rows in f16" } else { "" };
        Composer::new(*self, size)
            .unrolled("PLACES", places.len())
            .unrolled("ALL_TERMS", terms.len())
            .size("TERMS", terms.len() / places.len())
            .size("SHARED_BY", slices)
            .size("RESULT_FOURS", blocks)
            .size("ROW", row)
            .size("RESULT", result)
            .size("MATRIX_ROW", if side == LowRankSide::A { shape.inputs } else { shape.rank })
            .sizes("FIRSTS", firsts.into_iter())
            .sizes("TO", places.iter().map(|place| place.to))
            .sizes("WIDTHS", places.iter().map(|place| place.width))
            .sizes("FROM", terms.iter().map(|term| term.from))
            .sizes("DEPTHS", terms.iter().map(|term| term.depth))
            .sizes("AT", terms.iter().map(|term| term.at))
            .size("WRITE_MODE", mode.constant() as usize)
            .float("FACTOR", scale as f32)
            .vectors(if by_fours { 4 } else { 1 })
            .when("ROWS_F16", rows == Element::F16)
            .when("SLICED", slices > 1)
            .when("TRANSPOSED", !self.backward)
            .module("03_low_rank")
            .finish(
                caps,
                &[read("rows"), read("weights"), read_write("result"), uniform("step")],
                Grid::Flat { rows: 4, per_block: blocks, per_group },
                format!("{} modules, {slices} a sum, {form}{half}", shape.count),
                "all modules that read the same rows, each sum in one workgroup",
            )
    }
}

/// The gradients of each module's A, `d_zᵀ · x`, and B, `d_yᵀ · z`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct LowRankWeights {
    pub shape: LowRankShape,
    /// One of the two alone.
    pub only: Option<LowRankSide>,
    pub mode: WriteMode,
    /// The formats of x and d_y. f16 only where [`LowRankShape::by_fours`].
    pub rows: [Element; 2],
}

/// Fours of long rows whose gradients a workgroup computes, and most fours of short rows. Few: then there are many
/// workgroups, and each of its invocations has few tokens.
const LONG_FOURS: usize = 4;
const MOST_SHORT_FOURS: usize = 4;

impl LowRankWeights {
    /// Multiplications with additions of a token.
    pub fn multiplies(&self) -> usize {
        let sides = [LowRankSide::A, LowRankSide::B];
        sides.into_iter().filter(|side| self.has(*side)).map(|side| self.shape.elements(side)).sum()
    }

    fn has(&self, side: LowRankSide) -> bool {
        self.only.is_none_or(|only| only == side)
    }

    /// The first workgroup of each module's A and of its B, and how many there are in all.
    fn groups(&self, across: usize) -> ([Vec<usize>; 2], usize) {
        let mut groups = 0;
        let mut firsts = |side: LowRankSide, long: usize| {
            let first = groups;
            if self.has(side) {
                groups += long.div_ceil(4 * LONG_FOURS) * across;
            }
            first
        };
        let modules = self.shape.modules().iter();
        let inputs = self.shape.inputs;
        let of_a = modules.clone().map(|_| firsts(LowRankSide::A, inputs)).collect();
        let of_b = modules.map(|of| firsts(LowRankSide::B, of.columns)).collect();
        ([of_a, of_b], groups)
    }
}

/// Grid: a workgroup for 16 rows of one module's B, or columns of its A, by up to 16 of its short columns. Its invocations
/// share the tokens.
impl Spec for LowRankWeights {
    fn name(&self) -> &'static str {
        "low_rank_weights_backward"
    }

    fn kernel(&self, caps: &Capabilities) -> Result<Kernel> {
        let Self { shape, mode, rows: [x, d_y], .. } = *self;
        let short = shape.rank.div_ceil(4).next_power_of_two().min(MOST_SHORT_FOURS);
        let blocks = LONG_FOURS * short;
        // A CPU pays for barriers, and its compilers for invocations that have one.
        let wanted = if caps.software { blocks as u32 } else { 256 };
        let size = workgroup_size(caps, wanted, blocks as u32, self.name())?;
        let across = shape.rank.div_ceil(4 * short);
        let modules = shape.modules();
        let ([of_a, of_b], groups) = self.groups(across);
        let by_fours = shape.by_fours();
        let slices = size as usize / blocks;
        if slices > 1 {
            check_storage(caps, [64 * size], self.name())?;
        }
        let form = if by_fours { "vec4" } else { "scalar" };
        let half = [("x", x), ("d_y", d_y)].map(|(name, element)| match element {
            Element::F16 => format!(", {name} in f16"),
            Element::F32 => String::new(),
        });
        Composer::new(*self, size)
            .unrolled("MODULES", shape.count)
            .size("SHORT_FOURS", short)
            .size("LONG_FOURS", LONG_FOURS)
            .size("ACROSS", across)
            .size("SHARED_BY", slices)
            .size("RANK", shape.rank)
            .size("INPUTS", shape.inputs)
            .size("OUTPUTS", shape.outputs)
            .size("SHORT", shape.short)
            .sizes("SHORT_FROM", modules.iter().map(|of| of.short))
            .sizes("FIRSTS_A", of_a.into_iter())
            .sizes("FIRSTS_B", of_b.into_iter())
            .sizes("COLUMN", modules.iter().map(|of| of.column))
            .sizes("WIDTHS", modules.iter().map(|of| of.columns))
            .sizes("AT_A", modules.iter().map(|of| of.a))
            .sizes("AT_B", modules.iter().map(|of| of.b))
            .size("WRITE_MODE", mode.constant() as usize)
            .vectors(if by_fours { 4 } else { 1 })
            .when("SLICED", slices > 1)
            .when("X_F16", x == Element::F16)
            .when("D_Y_F16", d_y == Element::F16)
            .module("03_low_rank_weights")
            .finish(
                caps,
                &[
                    read("x"),
                    read("d_z"),
                    read("d_y"),
                    read("z"),
                    read_write("gradient"),
                    uniform("step"),
                ],
                Grid::Fixed { x: groups as u32, y: 1 },
                format!("{} modules, {slices} a sum, {form}{}", shape.count, half.concat()),
                "A and B of all modules that read the same rows, each sum in one workgroup",
            )
    }
}
