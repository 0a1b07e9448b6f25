//! Products on matrices that a subgroup holds: their tiles, constants and modules.

use super::tile::Choice;
use crate::caps::{Capabilities, MatrixConfig};
use crate::error::{Error, Result};
use crate::kernels::compose::{Composer, shader};
use crate::products::{Form, LinearShape, LinearTile};

/// Cells behind each row of a tile: without them the loads of a matrix meet in the same banks.
const PAD: usize = 8;
/// Floats behind each row of results on their way out.
const RESULT_PAD: usize = 4;

const fn choice(
    [bm, bn, bk]: [usize; 3],
    [wm, wn]: [usize; 2],
    factor: f64,
    busy: f64,
    edges: f64,
) -> Choice {
    Choice { tile: LinearTile::Matrix { bm, bn, bk, wm, wn }, factor, busy, edges }
}

/// The figures are as in `tile.rs`, in the same unit.
const CHOICES: [Choice; 5] = [
    choice([128, 128, 64], [32, 64], 0.2, 2.0, 40.0),
    choice([128, 128, 32], [64, 64], 0.2, 2.0, 40.0),
    choice([64, 128, 32], [32, 64], 0.22, 3.0, 40.0),
    choice([64, 64, 64], [32, 32], 0.28, 4.0, 40.0),
    choice([64, 64, 32], [32, 32], 0.3, 4.0, 40.0),
];

/// The tiles that fit the device, where the operands may be rounded to f16.
pub(super) fn matrix_choices(caps: &Capabilities, shape: &LinearShape) -> Vec<&'static Choice> {
    let Some(config) = caps.half_matrix().filter(|_| shape.half) else { return vec![] };
    CHOICES.iter().filter(|choice| fits(caps, config, choice.tile, shape.form)).collect()
}

fn fits(caps: &Capabilities, config: MatrixConfig, tile: LinearTile, form: Form) -> bool {
    let LinearTile::Matrix { bm, bn, bk, wm, wn } = tile else { return false };
    let [m, n, k] = [config.m, config.n, config.k].map(|size| size as usize);
    let size = tile.invocations(caps.matrix_lanes());
    let whole = [wm % m, wn % n, bk % k, m * n % 4].iter().all(|rest| *rest == 0);
    let loads = |side: usize| side * bk / 4 % size as usize == 0;
    whole
        && loads(bm)
        && loads(bn)
        && size <= caps.limits.workgroup_invocations()
        && bytes(config, tile, form) <= caps.limits.max_compute_workgroup_storage_size as usize
}

/// Elements from one row of a tile to the next, as the operands lie: along K, or along M and N.
fn pitches(form: Form, [bm, bn, bk]: [usize; 3]) -> [usize; 2] {
    let a = if form == Form::MatmulAt { bm } else { bk };
    let b = if form == Form::MatmulT { bk } else { bn };
    [a + PAD, b + PAD]
}

/// Bytes of workgroup memory.
fn bytes(config: MatrixConfig, tile: LinearTile, form: Form) -> usize {
    let LinearTile::Matrix { bm, bn, bk, wm, wn } = tile else { return 0 };
    let [pitch_a, pitch_b] = pitches(form, [bm, bn, bk]);
    let a = if form == Form::MatmulAt { bk } else { bm } * pitch_a;
    let b = if form == Form::MatmulT { bn } else { bk } * pitch_b;
    let results = config.m as usize * (config.n as usize + RESULT_PAD);
    2 * (a + b) + 4 * (bm / wm) * (bn / wn) * results
}

/// # Errors
/// `limit-exceeded` where the device has no matrices, or none that the tile is made of.
pub(super) fn matrix_constants(
    caps: &Capabilities,
    composer: Composer,
    shape: &LinearShape,
    tile: LinearTile,
) -> Result<Composer> {
    let LinearTile::Matrix { bm, bn, bk, wm, wn } = tile else {
        return Err(Error::internal("a tile of matrices is one"));
    };
    let config = caps.half_matrix().filter(|config| fits(caps, *config, tile, shape.form));
    let config =
        config.ok_or_else(|| Error::limit("subgroupMatrixConfigs", 0, 1, shape.form.name()))?;
    let [pitch_a, pitch_b] = pitches(shape.form, [bm, bn, bk]);
    let size = composer.workgroup_size();
    let composer = composer
        .size("BM", bm)
        .size("BN", bn)
        .size("BK", bk)
        .size("WM", wm)
        .size("WN", wn)
        .size("ROW_A", pitch_a)
        .size("ROW_B", pitch_b);
    let [m, n, k] = [config.m, config.n, config.k].map(|size| size as usize);
    let composer = composer.size("RESULT_PITCH", n + RESULT_PAD);
    let counts = [
        ("MATRICES_M", wm / m),
        ("MATRICES_N", wn / n),
        ("MATRICES_K", bk / k),
        ("LOADS_A", bm * bk / 4 / size),
        ("LOADS_B", bn * bk / 4 / size),
    ];
    // Loops that stand in for matrices are for CPUs, whose compilers take long for many copies.
    let add = |composer: Composer, (name, count): (&'static str, usize)| {
        if caps.emulated { composer.size(name, count) } else { composer.unrolled(name, count) }
    };
    Ok(counts.into_iter().fold(composer, add).matrix(caps, config))
}

pub(super) fn matrix_modules(composer: Composer, form: Form) -> Composer {
    let a = if form == Form::MatmulAt {
        shader!("lib/matrix/a_columns")
    } else {
        shader!("lib/matrix/a_rows")
    };
    let b = if form == Form::MatmulT {
        shader!("lib/matrix/b_rows")
    } else {
        shader!("lib/matrix/b_columns")
    };
    composer.module(a).module(b).module(shader!("03_matmul_matrix"))
}
