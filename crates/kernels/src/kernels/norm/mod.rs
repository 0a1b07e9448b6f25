//! RMSNorm and LayerNorm, forward and backward.

#[cfg(feature = "testing")]
pub(crate) mod cases;
#[cfg(feature = "testing")]
pub(crate) mod twin;

use super::compose::{Binding, Composer, Grid, Kernel, Spec, read, read_write, uniform};
use super::limits::{check_storage, elements, row_workgroup, workgroup_size};
use super::shape::{AttentionShape, Constant, PartialSums};
use crate::caps::Capabilities;
use crate::error::{Error, Result};
use crate::format::WriteMode;

/// What RMSNorm adds to the mean square, and what its weights are.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct NormTerms {
    pub epsilon: Constant,
    /// Weights are stored as their distance from 1.
    pub shifted: bool,
}

impl NormTerms {
    /// The terms for a weight that is multiplied as it is.
    pub const fn plain(epsilon: f64) -> Self {
        Self { epsilon: Constant(epsilon), shifted: false }
    }
}

/// What is normalised, and what becomes of it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct NormForm {
    /// The result is added to a residual.
    pub residual: bool,
    /// The result is in f16. The elements of a row are a multiple of four.
    pub half: bool,
    /// The norm's input as partial sums. It adds them to the residual stream, and writes that too.
    /// [`PartialSums::WHOLE`]: the input is rows.
    pub summed: PartialSums,
}

impl NormForm {
    pub const PLAIN: Self = Self { residual: false, half: false, summed: PartialSums::WHOLE };
}

/// Weights whose gradients one dispatch adds up.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct SummedWeights {
    pub count: usize,
    /// Elements from one weight's partial sums to the next one's.
    pub partials: usize,
    /// Elements from one weight's gradient to the next one's. Gradients are in the opposite order.
    pub outputs: usize,
}

impl SummedWeights {
    pub const ONE: Self = Self { count: 1, partials: 0, outputs: 0 };
}

/// Rows that one workgroup of `rms_norm_backward` or `layer_norm_backward` folds into one partial weight gradient. They
/// leave about `BLOCKS` workgroups, since each works on one row after the other.
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

/// Rows of `head_norm_backward`: its workgroups are four times as large, and so many that all run at once.
pub fn head_norm_rows(caps: &Capabilities, tokens: usize) -> usize {
    if caps.software { 8 } else { norm_rows(caps, 4 * tokens) }
}

/// Most elements of a row that an invocation keeps in registers. Its loads then do not wait for each other, nor for a
/// store.
const MOST_KEPT: usize = 24;

/// A row of a norm, and how it is read.
#[derive(Clone, Copy)]
struct NormRow {
    hidden: usize,
    /// Elements of a load.
    lanes: usize,
}

impl NormRow {
    /// On an H200 the backward pass over 4,096 rows of 768 takes 9 µs by fours, and 19 by elements.
    fn new(hidden: usize) -> Self {
        Self { hidden, lanes: elements(hidden) }
    }

    const fn vectors(self) -> usize {
        self.hidden / self.lanes
    }

    /// The row's sizes, and how much of it an invocation owns and keeps (LayerNorm keeps nothing).
    fn composer(self, caps: &Capabilities, spec: impl Spec) -> Result<Composer> {
        let size = row_workgroup(caps, self.vectors(), spec.name())?;
        let columns = self.vectors().div_ceil(size as usize);
        let composer = Composer::new(spec, size).vectors(self.lanes);
        let composer = composer.size("HIDDEN", self.hidden).size("ROW", self.vectors());
        Ok(if caps.software || columns * self.lanes > MOST_KEPT {
            composer.size("COLUMNS", columns).size("KEPT", 1)
        } else {
            composer.unrolled("COLUMNS", columns).size("KEPT", columns)
        })
    }
}

/// A workgroup for `rows` rows.
const fn by_rows(rows: usize) -> Grid {
    Grid::Flat { rows, per_block: 1, per_group: 1 }
}

const FORWARD: [Binding; 4] = [read("x"), read("weight"), read_write("y"), uniform("step")];

const BACKWARD: [Binding; 6] = [
    read("x"),
    read("weight"),
    read("d_y"),
    read_write("d_x"),
    read_write("partial_sums"),
    uniform("step"),
];

/// RMSNorm of rows of `hidden` elements. Grid: one workgroup per row.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct RmsNormForward {
    pub hidden: usize,
    pub terms: NormTerms,
    pub form: NormForm,
}

impl Spec for RmsNormForward {
    fn name(&self) -> &'static str {
        "rms_norm_forward"
    }

    /// `internal` for results in f16 of rows that are no multiple of 4, and for a residual with results in f16 or with
    /// parts.
    fn kernel(&self, caps: &Capabilities) -> Result<Kernel> {
        let Self { hidden, terms, form } = *self;
        let NormForm { residual, half, summed } = form;
        let (row, sums) = (NormRow::new(hidden), summed != PartialSums::WHOLE);
        if residual && (half || sums) || half && row.lanes == 1 {
            return Err(Error::internal(format!("no norm of {hidden} has the form {form:?}")));
        }
        let mut bindings = FORWARD.to_vec();
        if residual {
            bindings.push(read("residual"));
        }
        if sums {
            bindings.extend([read("before"), read_write("stream")]);
        }
        let mut kernel = row
            .composer(caps, *self)?
            .float("EPSILON", terms.epsilon.0 as f32)
            .when("RESIDUAL", residual)
            .when("F16", half)
            .when("SHIFTED", terms.shifted)
            .summed_parts(summed, row.lanes)
            .reduced(caps, "02_rms_norm_forward", &bindings, by_rows(1))?
            .of_parts(summed);
        for (is, what) in [(residual, ", residual"), (half, ", in f16")] {
            if is {
                kernel.variant += what;
            }
        }
        Ok(kernel)
    }
}

/// LayerNorm of rows of `hidden` elements, plus a residual if it is added to one. Grid: one workgroup per row.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct LayerNormForward {
    pub hidden: usize,
    pub epsilon: Constant,
    pub residual: bool,
}

impl Spec for LayerNormForward {
    fn name(&self) -> &'static str {
        "layer_norm_forward"
    }

    fn kernel(&self, caps: &Capabilities) -> Result<Kernel> {
        let mut bindings = FORWARD.to_vec();
        if self.residual {
            bindings.push(read("residual"));
        }
        let mut kernel = NormRow::new(self.hidden)
            .composer(caps, *self)?
            .float("EPSILON", self.epsilon.0 as f32)
            .when("RESIDUAL", self.residual)
            .reduced(caps, "02_layer_norm_forward", &bindings, by_rows(1))?;
        if self.residual {
            kernel.variant += ", residual";
        }
        Ok(kernel)
    }
}

/// The gradients of [`RmsNormForward`]. `mode` is for `d_x`, and `d_y` is in partial `sums`. `rows` rows, [`norm_rows`]
/// in a plan, leave one partial sum of the weight's gradient. Grid: one workgroup for these.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct RmsNormBackward {
    pub hidden: usize,
    pub terms: NormTerms,
    pub mode: WriteMode,
    pub rows: usize,
    pub sums: PartialSums,
}

impl Spec for RmsNormBackward {
    fn name(&self) -> &'static str {
        "rms_norm_backward"
    }

    fn kernel(&self, caps: &Capabilities) -> Result<Kernel> {
        let Self { hidden, terms, mode, rows, sums } = *self;
        let row = NormRow::new(hidden);
        let composer = row
            .composer(caps, *self)?
            .size("ROWS", rows)
            .size("WRITE_MODE", mode.constant() as usize)
            .float("EPSILON", terms.epsilon.0 as f32)
            .when("SHIFTED", terms.shifted)
            .summed_parts(sums, row.lanes);
        let kernel = composer.reduced(caps, "02_rms_norm_backward", &BACKWARD, by_rows(rows))?;
        Ok(kernel.of_parts(sums))
    }
}

/// As [`RmsNormBackward`]. A partial sum has the factors' columns, then those of what is added.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct LayerNormBackward {
    pub hidden: usize,
    pub epsilon: Constant,
    pub mode: WriteMode,
    pub rows: usize,
}

impl Spec for LayerNormBackward {
    fn name(&self) -> &'static str {
        "layer_norm_backward"
    }

    fn kernel(&self, caps: &Capabilities) -> Result<Kernel> {
        let Self { hidden, epsilon, mode, rows } = *self;
        NormRow::new(hidden)
            .composer(caps, *self)?
            .size("ROWS", rows)
            .size("WRITE_MODE", mode.constant() as usize)
            .float("EPSILON", epsilon.0 as f32)
            .reduced(caps, "02_layer_norm_backward", &BACKWARD, by_rows(rows))
    }
}

/// Invocations that share a head: four vectors for each where it has 128 elements
/// (docs/decisions/081-adapters-heads-and-chunks.md).
const TEAM: u32 = 8;

/// RMSNorm of the query and key heads of rows of `qkv`. Grid: one workgroup for some heads of a row, values' among them.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct HeadNormForward {
    pub shape: AttentionShape,
    pub terms: NormTerms,
}

impl Spec for HeadNormForward {
    fn name(&self) -> &'static str {
        "head_norm_forward"
    }

    fn kernel(&self, caps: &Capabilities) -> Result<Kernel> {
        let teams = HeadTeams::new(caps, self.shape, self.name())?;
        let groups = teams.row_heads().div_ceil(teams.count());
        let grid = Grid::Flat { rows: 1, per_block: groups, per_group: 1 };
        check_storage(caps, [8 * teams.size], self.name())?;
        let composer = teams.composer(caps, *self, self.terms).module("02_head_norm_forward");
        composer.finish(caps, &FORWARD, grid, teams.variant(), TEAMS)
    }
}

/// In place on the gradients of rows of `qkv`; `rows` as for [`RmsNormBackward`], queries' columns before keys'.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct HeadNormBackward {
    pub shape: AttentionShape,
    pub terms: NormTerms,
    pub rows: usize,
}

impl Spec for HeadNormBackward {
    fn name(&self) -> &'static str {
        "head_norm_backward"
    }

    fn kernel(&self, caps: &Capabilities) -> Result<Kernel> {
        let Self { shape, terms, rows } = *self;
        let teams = HeadTeams::new(caps, shape, self.name())?;
        check_storage(caps, [8 * teams.size, 8 * teams.lanes as u32 * teams.size], self.name())?;
        let bindings = [
            read("x"),
            read("weight"),
            read_write("d"),
            read_write("partial_sums"),
            uniform("step"),
        ];
        // A power of two near the root of the number of teams.
        let helpers = 1 << teams.count().ilog2().div_ceil(2);
        let composer =
            teams.composer(caps, *self, terms).size("ROWS", rows).size("HELPERS", helpers);
        let composer = composer.module("02_head_norm_backward");
        composer.finish(caps, &bindings, by_rows(rows), teams.variant(), TEAMS)
    }
}

/// Why a workgroup has teams.
const TEAMS: &str = "a team for each head: all of a row's loads at once, one sum of each team";

/// How a workgroup shares the heads of a row.
#[derive(Clone, Copy)]
struct HeadTeams {
    shape: AttentionShape,
    /// Invocations of a workgroup, and of a team.
    size: u32,
    team: u32,
    /// Elements of a load.
    lanes: usize,
}

impl HeadTeams {
    /// A CPU runs one subgroup of a workgroup at a time: there a workgroup is one team.
    fn new(caps: &Capabilities, shape: AttentionShape, what: &str) -> Result<Self> {
        let lanes = elements(shape.head_dim);
        if caps.software {
            let size = row_workgroup(caps, shape.head_dim, what)?;
            return Ok(Self { shape, size, team: size, lanes });
        }
        let size = workgroup_size(caps, 256, 1, what)?;
        Ok(Self { shape, size, team: TEAM.min(size), lanes })
    }

    const fn count(self) -> usize {
        (self.size / self.team) as usize
    }

    const fn row_heads(self) -> usize {
        self.shape.heads + 2 * self.shape.kv_heads
    }

    fn variant(self) -> String {
        format!("teams of {}", self.team)
    }

    fn composer(self, caps: &Capabilities, spec: impl Spec, terms: NormTerms) -> Composer {
        let AttentionShape { heads, kv_heads, head_dim, .. } = self.shape;
        let units = head_dim / self.lanes;
        let columns = units.div_ceil(self.team as usize);
        let composer = Composer::new(spec, self.size)
            .size("HEADS", heads)
            .size("KV_HEADS", kv_heads)
            .size("ROW_HEADS", self.row_heads())
            .size("HEAD_DIM", head_dim)
            .size("UNITS", units)
            .size("TEAM", self.team as usize)
            .float("EPSILON", terms.epsilon.0 as f32)
            .vectors(self.lanes)
            .when("SHIFTED", terms.shifted);
        if caps.software || columns * self.lanes > MOST_KEPT {
            composer.size("COLUMNS", columns)
        } else {
            composer.unrolled("COLUMNS", columns)
        }
    }
}

/// Adds up partial sums of `hidden` columns, one for every `rows` rows of the batch, for each of `weights`. Grid: a
/// workgroup for neighbouring columns.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct ColumnSum {
    pub hidden: usize,
    pub rows: usize,
    pub weights: SummedWeights,
}

impl Spec for ColumnSum {
    fn name(&self) -> &'static str {
        "column_sum_forward"
    }

    fn kernel(&self, caps: &Capabilities) -> Result<Kernel> {
        let Self { hidden, rows, weights } = *self;
        let (most_lanes, wanted, loads) = if caps.software { (1, 64, 1) } else { (32, 256, 4) };
        let size = workgroup_size(caps, wanted, 1, self.name())?;
        check_storage(caps, [4 * size], self.name())?;
        let lanes = most_lanes.min(size as usize);
        let columns = weights.count * hidden;
        let flat = Grid::Flat { rows: 1, per_block: columns, per_group: size as usize / lanes };
        Composer::new(*self, size)
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
}
