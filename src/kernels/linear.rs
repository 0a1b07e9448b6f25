//! The linear family: `matmul`, `matmul_t`, `matmul_at` by tiles or directly, and `matvec`.

use super::compose::{Binding::*, Composer, Grid, Kernel, shader};
use super::unrolled::direct_block;
use super::{WriteMode, check_storage, workgroup_size};
use crate::caps::Capabilities;
use crate::error::{Error, Result};

/// Which product, and which of its dimensions is the batch of tokens (a run-time value).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Form {
    /// C[tokens, N] = A[tokens, K] · B[N, K]ᵀ: a linear layer forward.
    MatmulT,
    /// C[tokens, N] = A[tokens, K] · B[K, N]: the gradient of its input.
    Matmul,
    /// C[K, N] = A[tokens, K]ᵀ · B[tokens, N]: the gradient of its weight.
    MatmulAt,
}

impl Form {
    pub const ALL: [Self; 3] = [Self::MatmulT, Self::Matmul, Self::MatmulAt];

    pub const fn name(self) -> &'static str {
        match self {
            Self::MatmulT => "matmul_t",
            Self::Matmul => "matmul",
            Self::MatmulAt => "matmul_at",
        }
    }
}

/// Constant dimensions of a product, in [`Form`]'s letters, and the most tokens it will see.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct LinearShape {
    pub form: Form,
    pub n: usize,
    pub k: usize,
    /// Elements from one row of A to the next; more than K when A holds further columns.
    pub a_stride: usize,
    /// Elements from one row of C to the next.
    pub c_stride: usize,
    pub tokens: usize,
}

impl LinearShape {
    /// A product whose operands have no columns besides those used.
    pub fn new(form: Form, n: usize, k: usize, tokens: usize) -> Self {
        Self { form, n, k, a_stride: k, c_stride: n, tokens }
    }

    /// Every row begins at, and holds, a multiple of four elements.
    fn by_vectors(&self) -> bool {
        [self.n, self.k, self.a_stride, self.c_stride].iter().all(|size| size % 4 == 0)
    }

    /// Rows of C.
    fn m(&self) -> usize {
        if self.form == Form::MatmulAt { self.k } else { self.tokens }
    }
}

/// What a product is added to.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Output {
    Mode(WriteMode),
    /// C = residual + product, the residual in a buffer of its own (binding 5, or 4 of `matvec`).
    Residual,
}

/// How results are divided among invocations.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum LinearTile {
    /// BM×BN results a workgroup through workgroup memory in steps of BK, TM×TN an invocation.
    Tiled { bm: usize, bn: usize, bk: usize, tm: usize, tn: usize },
    /// TM×TN results an invocation, straight from storage.
    Direct { tm: usize, tn: usize },
}

impl LinearTile {
    const fn square(side: usize, each: usize) -> Self {
        Self::Tiled { bm: side, bn: side, bk: 16, tm: each, tn: each }
    }

    /// Invocations and bytes of workgroup memory.
    fn needs(self) -> (u32, u32) {
        match self {
            Self::Tiled { bm, bn, bk, tm, tn } => {
                ((bm / tm * (bn / tn)) as u32, (4 * bk * (bm + bn)) as u32)
            }
            Self::Direct { .. } => (1, 0),
        }
    }

    fn label(self) -> String {
        match self {
            Self::Tiled { bm, bn, bk, tm, tn } => format!("tiled {bm}x{bn}x{bk}, {tm}x{tn} each"),
            Self::Direct { tm, tn } => format!("direct, {tm}x{tn} each"),
        }
    }
}

/// Largest first: a larger tile reads each operand fewer times.
const TILES: [LinearTile; 4] = [
    LinearTile::square(128, 8),
    LinearTile::square(64, 4),
    LinearTile::square(32, 4),
    LinearTile::square(16, 4),
];
/// On SwiftShader a vector load costs as much as twenty vector multiply-adds, whatever the address
/// pattern: the larger the block the better, but compiling it takes longer (two cores: 16×16 0.5 s a
/// pipeline and 3.6 GFLOP/s, 16×8 0.2 s and 2.9, 8×8 0.1 s and 2.4). Large products take the first,
/// small ones the second.
const DIRECT: [LinearTile; 2] =
    [LinearTile::Direct { tm: 16, tn: 16 }, LinearTile::Direct { tm: 8, tn: 8 }];
/// Multiply-adds from which the larger block repays its compilation within a hundred steps.
const LARGE_PRODUCT: u64 = 4 << 20;

/// Fewest workgroups that keep a large GPU busy; below, a smaller tile is chosen.
const BUSY_GROUPS: usize = 96;

/// The tiles that [`linear`] may choose among on this device, best first for large products.
pub fn linear_tiles(caps: &Capabilities) -> Vec<LinearTile> {
    let fits = |tile: &LinearTile| {
        let (invocations, bytes) = tile.needs();
        invocations <= caps.limits.workgroup_invocations()
            && bytes <= caps.limits.max_compute_workgroup_storage_size
    };
    if caps.software {
        return DIRECT.to_vec();
    }
    let tiles: Vec<_> = TILES.into_iter().filter(fits).collect();
    if tiles.is_empty() { DIRECT.to_vec() } else { tiles }
}

fn pick(caps: &Capabilities, shape: &LinearShape) -> (LinearTile, String) {
    let tiles = linear_tiles(caps);
    if tiles == DIRECT {
        let why = if caps.software {
            "the adapter runs on a CPU, where barriers cost more than workgroup memory saves"
        } else {
            "no tile fits the limits on invocations or workgroup memory"
        };
        let operations = (shape.n as u64 * shape.k as u64).saturating_mul(shape.tokens as u64);
        let large = operations >= LARGE_PRODUCT;
        let size = if large {
            "a large product repays a large block"
        } else {
            "small product, quick to compile"
        };
        return (DIRECT[usize::from(!large)], format!("{why}; {size}"));
    }
    for tile in &tiles {
        if let LinearTile::Tiled { bm, bn, .. } = *tile {
            let groups = shape.m().div_ceil(bm) * shape.n.div_ceil(bn);
            if groups >= BUSY_GROUPS {
                return (
                    *tile,
                    format!(
                        "largest tile that fits the limits and still makes {groups} workgroups"
                    ),
                );
            }
        }
    }
    let smallest =
        tiles.iter().find(|t| t.needs().0 <= 64).copied().unwrap_or(tiles[tiles.len() - 1]);
    (smallest, format!("small product: fewer than {BUSY_GROUPS} workgroups with any larger tile"))
}

/// A product of the given shape. Bindings: a, b, c, step, range, and the residual if there is one.
///
/// # Errors
/// `limit-exceeded` when no form fits.
pub fn linear(caps: &Capabilities, shape: &LinearShape, output: Output) -> Result<Kernel> {
    let (tile, reason) = pick(caps, shape);
    linear_with_tile(caps, shape, output, tile, reason)
}

/// [`linear`] with the tile given: for measurements and tests.
pub fn linear_with_tile(
    caps: &Capabilities,
    shape: &LinearShape,
    output: Output,
    tile: LinearTile,
    reason: String,
) -> Result<Kernel> {
    let name = shape.form.name();
    let elements = shape.tokens as u64 * shape.a_stride.max(shape.c_stride) as u64;
    if shape.n == 0 || shape.k == 0 || elements > u64::from(u32::MAX) {
        return Err(Error::limit("32-bit indexing", u64::from(u32::MAX), elements, name));
    }
    let size = match tile {
        LinearTile::Tiled { .. } => tile.needs().0,
        LinearTile::Direct { .. } => workgroup_size(caps, 8, 1, name)?,
    };
    let composer = constants(Composer::new(name, size), shape, output, tile);
    let composer = modules(composer, shape, output, tile);
    let mut bindings = vec![Read, Read, ReadWrite, Uniform, Uniform];
    if output == Output::Residual {
        bindings.push(Read);
    }
    let vectors = if shape.by_vectors() { "vec4" } else { "scalar" };
    composer.finish(
        caps,
        &bindings,
        grid(caps, shape, tile, size)?,
        format!("{}, {vectors}", tile.label()),
        reason,
    )
}

fn grid(caps: &Capabilities, shape: &LinearShape, tile: LinearTile, size: u32) -> Result<Grid> {
    let fixed_rows = shape.form == Form::MatmulAt;
    let grid = match tile {
        LinearTile::Tiled { bm, bn, .. } => {
            let x = shape.n.div_ceil(bn) as u32;
            if fixed_rows {
                Grid::Fixed { x, y: shape.k.div_ceil(bm) as u32 }
            } else {
                Grid::RowsByY { rows: bm, x }
            }
        }
        LinearTile::Direct { tm, tn } => {
            Grid::Flat { rows: tm, per_block: shape.n.div_ceil(tn), per_group: size as usize }
        }
    };
    if fixed_rows && matches!(grid, Grid::Flat { .. }) {
        let [x, y] = grid
            .resolve(shape.k, caps.limits.max_compute_workgroups_per_dimension)?
            .unwrap_or([1, 1]);
        return Ok(Grid::Fixed { x, y });
    }
    Ok(grid)
}

fn constants(
    composer: Composer,
    shape: &LinearShape,
    output: Output,
    tile: LinearTile,
) -> Composer {
    let (a_inner, b_inner, b_stride) = match shape.form {
        Form::MatmulT => (shape.k, shape.k, shape.k),
        Form::Matmul | Form::MatmulAt => (shape.k, shape.n, shape.n),
    };
    let composer = composer
        .size("N", shape.n)
        .size(if shape.form == Form::MatmulAt { "M" } else { "K" }, shape.k)
        .size("A_STRIDE", shape.a_stride)
        .size("A_INNER", a_inner)
        .size("B_STRIDE", b_stride)
        .size("B_INNER", b_inner)
        .size("C_STRIDE", shape.c_stride)
        .size("A_COLUMNS", usize::from(shape.form != Form::MatmulT))
        .size(
            "WRITE_MODE",
            if let Output::Mode(mode) = output { mode.constant() as usize } else { 0 },
        );
    match tile {
        LinearTile::Tiled { bm, bn, bk, tm, tn } => composer
            .size("BM", bm)
            .size("BN", bn)
            .size("BK", bk)
            .unrolled("TM", tm)
            .size("TN", tn)
            .unrolled("LEFT_VECTORS", tm / 4)
            .unrolled("RIGHT_VECTORS", tn / 4),
        LinearTile::Direct { tm, tn } => composer.size("TM", tm).size("TN", tn),
    }
}

fn modules(composer: Composer, shape: &LinearShape, output: Output, tile: LinearTile) -> Composer {
    let vectors = shape.by_vectors();
    let composer = composer
        .module(shader!("lib/step"))
        .module(shader!("lib/range"))
        .module(shader!("lib/flat"))
        .module(shader!("lib/write_mode"))
        .module(if vectors { shader!("lib/linear_vec4") } else { shader!("lib/linear_scalar") })
        .module(match (output, vectors) {
            (Output::Residual, true) => shader!("lib/residual_vec4"),
            (Output::Residual, false) => shader!("lib/residual_scalar"),
            (Output::Mode(_), true) => shader!("lib/previous_vec4"),
            (Output::Mode(_), false) => shader!("lib/previous_scalar"),
        })
        .module(match shape.form {
            Form::MatmulAt => shader!("lib/rows_inner"),
            Form::MatmulT | Form::Matmul => shader!("lib/rows_outer"),
        });
    match (tile, shape.form) {
        (LinearTile::Tiled { .. }, form) => composer
            .module(if form == Form::MatmulAt {
                shader!("lib/stage_a_columns")
            } else {
                shader!("lib/stage_a_rows")
            })
            .module(if form == Form::MatmulT {
                shader!("lib/stage_b_rows")
            } else {
                shader!("lib/stage_b_columns")
            })
            .module(shader!("03_linear_tiled")),
        (LinearTile::Direct { tm, tn }, form) => {
            composer.module(shader!("03_linear_direct")).module(&direct_block(form, tm, tn))
        }
    }
}

/// `matvec_forward`: N results of K products each, for one row. Bindings: a, b, c, range, and the
/// residual if `residual`.
pub fn matvec(caps: &Capabilities, n: usize, k: usize, residual: bool) -> Result<Kernel> {
    let name = "matvec_forward";
    // Sixteen invocations read 256 neighbouring bytes of a row; a short row has no work for them.
    // A CPU gains nothing from neighbours and loses at the barrier.
    let (most_lanes, wanted) = if caps.software { (1, 8) } else { (16, 64) };
    let size = workgroup_size(caps, wanted, 1, name)?;
    check_storage(caps, 4 * size, name)?;
    let lanes = (k / 4).next_power_of_two().clamp(1, most_lanes).min(size as usize);
    let vectors = k.is_multiple_of(4);
    let composer = Composer::new(name, size)
        .size("N", n)
        .size("K", k)
        .size("LANES", lanes)
        .module(shader!("lib/range"))
        .module(shader!("lib/flat"))
        .module(if vectors { shader!("lib/matvec_vec4") } else { shader!("lib/matvec_scalar") })
        .module(if residual {
            shader!("lib/matvec_residual")
        } else {
            shader!("lib/matvec_overwrite")
        })
        .module(shader!("03_matvec"));
    let mut bindings = vec![Read, Read, ReadWrite, Uniform];
    if residual {
        bindings.push(Read);
    }
    let flat = Grid::Flat { rows: 1, per_block: n, per_group: size as usize / lanes };
    let [x, y] =
        flat.resolve(1, caps.limits.max_compute_workgroups_per_dimension)?.unwrap_or([1, 1]);
    let variant = format!("{lanes} lanes a row, {}", if vectors { "vec4" } else { "scalar" });
    composer.finish(
        caps,
        &bindings,
        Grid::Fixed { x, y },
        variant,
        "one row: each weight is read once, by neighbours",
    )
}
