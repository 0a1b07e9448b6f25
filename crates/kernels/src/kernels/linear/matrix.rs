//! Products on matrices that a subgroup holds: their tiles, constants and modules.

use super::choice::{Choice, PART};
use crate::caps::{Capabilities, MatrixConfig};
use crate::error::{Error, Result};
use crate::format::{Element, WeightFormat, WriteMode};
use crate::kernels::compose::{Composer, MATRIX_USERS};
use crate::kernels::shape::Output;
use crate::products::{Form, LinearShape, LinearTile};

/// Cells of padding after each row of a tile. Without them the loads of a matrix meet in the same banks.
const PAD: usize = 8;
/// Floats of padding after each row of results on their way out.
const RESULT_PAD: usize = 4;

const fn choice(
    [bm, bn, bk]: [usize; 3],
    [wm, wn]: [usize; 2],
    factor: f64,
    busy: f64,
    edges: f64,
) -> Choice {
    let tile = LinearTile::Matrix { bm, bn, bk, wm, wn };
    Choice { tile, factor, busy, edges, together: 1, part: PART }
}

/// The largest tile whose subgroups have 64×64 results. Its registers leave room for two workgroups. It is so fast that
/// memory's time shows.
const fn widest(factor: f64, edges: f64) -> Choice {
    Choice { together: 2, part: 0.41, ..choice([128, 128, 32], [64, 64], factor, 1.0, edges) }
}

/// The figures are as in `tile.rs`, in the same unit, and hold within a form. They are fitted to the products of a step
/// of seed on an H100, with eight documents and with one. Subgroups of 64×64 read their operands least often; with both
/// operands along K they are slower all the same.
const fn choices(form: Form) -> &'static [Choice] {
    const T: [Choice; 4] = [
        choice([128, 128, 64], [32, 64], 0.2, 1.0, 200.0),
        choice([64, 128, 32], [32, 64], 0.33, 2.0, 140.0),
        choice([64, 64, 64], [32, 32], 0.275, 1.5, 68.0),
        choice([64, 64, 32], [32, 32], 0.353, 1.5, 180.0),
    ];
    const WIDEST: Choice = widest(0.152, 450.0);
    const PLAIN: [Choice; 3] = [
        WIDEST,
        choice([64, 64, 64], [32, 32], 0.36, 1.5, 160.0),
        choice([64, 64, 32], [32, 32], 0.38, 1.5, 180.0),
    ];
    const AT: [Choice; 2] = [WIDEST, choice([64, 64, 32], [32, 32], 0.324, 1.5, 260.0)];
    match form {
        Form::MatmulT => &T,
        Form::Matmul => &PLAIN,
        Form::MatmulAt => &AT,
    }
}

/// The tiles that fit the device, where the operands may be rounded to f16.
pub(super) fn matrix_choices(caps: &Capabilities, shape: &LinearShape) -> Vec<&'static Choice> {
    // Loops that stand in for matrices are for tests on a CPU, which has no use for tiles otherwise.
    let wanted = shape.half && (caps.emulated || !caps.software);
    let Some(config) = caps.half_matrix().filter(|_| wanted) else { return vec![] };
    choices(shape.form)
        .iter()
        .filter(|choice| fits(caps, config, choice.tile, shape.form))
        .collect()
}

/// Whether a product of this shape can read halves that it would round otherwise: by vectors, and by matrices.
pub fn reads_halves(caps: &Capabilities, shape: &LinearShape) -> bool {
    shape.by_vectors() && !matrix_choices(caps, shape).is_empty()
}

fn fits(caps: &Capabilities, config: MatrixConfig, tile: LinearTile, form: Form) -> bool {
    let LinearTile::Matrix { bm, bn, bk, wm, wn } = tile else { return false };
    let [m, n, k] = [config.m, config.n, config.k].map(|size| size as usize);
    let size = tile.invocations(caps.matrix_lanes());
    let lanes = caps.matrix_lanes() as usize;
    let whole = [wm % m, wn % n, bk % k, m * n / 4 % lanes].iter().all(|rest| *rest == 0);
    let loads = |side: usize| (side * bk / 4).is_multiple_of(size as usize);
    let panels = Panels::of(form, [bm, bn, bk], [wm, wn]);
    let lines = across(form, [bm, bn, bk]).iter().zip(&panels).all(|(across, panels)| {
        // Lines that all invocations load at once: some of a panel, or some panels.
        let step = size as usize / across;
        let fits =
            step > 0 && (panels.lines.is_multiple_of(step) || step.is_multiple_of(panels.lines));
        fits && (size as usize).is_multiple_of(*across)
    });
    whole
        && lines
        && loads(bm)
        && loads(bn)
        && size <= caps.limits.workgroup_invocations()
        && bytes(config, tile, form) <= caps.limits.max_compute_workgroup_storage_size as usize
}

/// The layout of an operand's tile: panels, each of the `w` of its `b` rows or columns that a subgroup multiplies.
struct Panels {
    count: usize,
    /// Lines of a panel: along K where the operand is stored so, else along M or N.
    lines: usize,
    /// Elements of a line.
    len: usize,
}

impl Panels {
    fn new(along_k: bool, b: usize, w: usize, bk: usize) -> Self {
        let (lines, len) = if along_k { (w, bk) } else { (bk, w) };
        Self { count: b / w, lines, len }
    }

    /// The panels of a and b.
    fn of(form: Form, [bm, bn, bk]: [usize; 3], [wm, wn]: [usize; 2]) -> [Self; 2] {
        let a = Self::new(form != Form::MatmulAt, bm, wm, bk);
        [a, Self::new(form == Form::MatmulT, bn, wn, bk)]
    }

    fn row(&self) -> usize {
        self.len + PAD
    }

    fn cells(&self) -> usize {
        self.count * self.lines * self.row()
    }

    /// Adds where the elements of operand `A` or `B` are, and what an invocation loads of them: units of `unit` elements,
    /// of which `across` of a line of all panels are neighbours.
    fn constants(
        &self,
        composer: Composer,
        operand: char,
        (across, unit): (usize, usize),
    ) -> Composer {
        let apart = composer.workgroup_size() / across;
        let sizes = [
            ("PANELS", self.count),
            ("LINES", self.lines),
            ("ROW", self.row()),
            ("UNITS", self.len / unit),
            ("ACROSS", across),
            ("APART", apart),
        ];
        let add =
            |composer: Composer, (name, size)| composer.size(&format!("{name}_{operand}"), size);
        sizes.into_iter().fold(composer, add)
    }
}

/// Vectors of a line of the tiles of a and b, all panels together.
fn across(form: Form, [bm, bn, bk]: [usize; 3]) -> [usize; 2] {
    let a = if form == Form::MatmulAt { bm } else { bk };
    [a / 4, if form == Form::MatmulT { bk / 4 } else { bn / 4 }]
}

/// Elements of B that an invocation loads at a time: where B is packed as many as a vector of words has, if these have one
/// scale and all invocations load equally many, else four.
fn unit_of_b(shape: &LinearShape, [bm, bn, bk]: [usize; 3], panel: &Panels, size: usize) -> usize {
    let word = match shape.b {
        WeightFormat::Int8 => 4,
        WeightFormat::Int4 => 8,
        WeightFormat::F32 | WeightFormat::F16 => return 4,
    };
    let fits = |unit: &usize| {
        let across = 4 * across(shape.form, [bm, bn, bk])[1] / unit;
        let whole = panel.len.is_multiple_of(*unit) && (bn * bk).is_multiple_of(unit * size);
        let step = size.checked_div(across).unwrap_or(0);
        let lines =
            step > 0 && (panel.lines.is_multiple_of(step) || step.is_multiple_of(panel.lines));
        whole && lines && size.is_multiple_of(across)
    };
    [4 * word, 2 * word].into_iter().find(fits).unwrap_or(4)
}

/// Bytes of workgroup memory.
fn bytes(config: MatrixConfig, tile: LinearTile, form: Form) -> usize {
    let LinearTile::Matrix { bm, bn, bk, wm, wn } = tile else { return 0 };
    let [a, b] = Panels::of(form, [bm, bn, bk], [wm, wn]);
    let results = config.m as usize * (config.n as usize + RESULT_PAD);
    2 * (a.cells() + b.cells()) + 4 * (bm / wm) * (bn / wn) * results
}

/// # Errors
/// `limit-exceeded` where the device has no matrices, or none that the tile is made of.
pub(super) fn matrix_constants(
    caps: &Capabilities,
    composer: Composer,
    shape: &LinearShape,
    (output, c): (Output, Element),
    tile: LinearTile,
) -> Result<Composer> {
    let LinearTile::Matrix { bm, bn, bk, wm, wn } = tile else {
        return Err(Error::internal("a tile of matrices is one"));
    };
    let form = shape.form;
    let config = caps.half_matrix().filter(|config| fits(caps, *config, tile, form));
    let config = config.ok_or_else(|| Error::limit("subgroupMatrixConfigs", 0, 1, form.name()))?;
    let [a, b] = Panels::of(form, [bm, bn, bk], [wm, wn]);
    let lanes = caps.matrix_lanes() as usize;
    let size = composer.workgroup_size();
    let [m, n] = [config.m, config.n].map(|size| size as usize);
    let [across_a, across_b] = across(form, [bm, bn, bk]);
    let unit = unit_of_b(shape, [bm, bn, bk], &b, size);
    let biased = matches!(output, Output::Bias | Output::BiasedResidual);
    let whole_tiles = shape.m() >= bm && shape.n >= bn;
    // Products of weights, whose K is short, are faster through workgroup memory.
    let direct =
        form != Form::MatmulT && shape.by_vectors() && c == Element::F32 && !biased && whole_tiles;
    let sizes = [("BM", bm), ("BN", bn), ("BK", bk), ("WM", wm), ("WN", wn)];
    let composer = sizes.into_iter().fold(composer, |all, (name, size)| all.size(name, size));
    let composer = a.constants(composer, 'A', (across_a, 4));
    let composer = b
        .constants(composer, 'B', (4 * across_b / unit, unit))
        .size("UNIT_B", unit)
        .size("RESULT_PITCH", n + RESULT_PAD)
        .flag("DIRECT", direct)
        .flag("STARTS", starts(output).is_some());
    let counts = [
        ("MATRICES_M", wm / m),
        ("MATRICES_N", wn / n),
        ("RESULTS", m * n / 4 / lanes),
        ("STEPS", bk / config.k as usize),
        ("LOADS_A", bm * bk / 4 / size),
        ("LOADS_B", bn * bk / unit / size),
        ("QUADS_B", unit / 4),
    ];
    let added = if direct { starts(output) } else { None };
    Ok((composer.matrix_loops(caps, &counts).matrix(caps, config))
        .one_of(&MATRIX_USERS, "OF_PRODUCTS")
        .when("B_F16", shape.b == WeightFormat::F16)
        .when("B_UNITS", unit > 4)
        .when(
            "B_PAIRS",
            matches!((shape.b, unit), (WeightFormat::Int8, 8) | (WeightFormat::Int4, 16)),
        )
        .when("DIRECT_ADDS", added == Some("c"))
        .when("DIRECT_RESIDUAL", added == Some("residual")))
}

/// The buffer whose elements are added to those of a product.
fn starts(output: Output) -> Option<&'static str> {
    match output {
        Output::Mode(WriteMode::Overwrite)
        | Output::Bias
        | Output::BiasedResidual
        | Output::GateGradient(_)
        | Output::Gated(_) => None,
        Output::Mode(_) => Some("c"),
        Output::Residual => Some("residual"),
    }
}
