//! The product of a few rows with a matrix: the linear layer of several decoded tokens.

use crate::caps::Capabilities;
use crate::error::Result;
use crate::kernels::compose::{Binding, Composer, Grid, Kernel, read, read_write, shader, uniform};
use crate::kernels::limits::{check_storage, workgroup_size};
use crate::kernels::modules::UNIT;
use crate::kernels::shape::{MatvecRowsShape, Output};
use crate::kernels::spec::KernelSpec;

/// Most rows for which a number of the matrix is read once: as many sums as this times the matrix's rows stay
/// in registers.
const MOST_COLUMNS: usize = 16;
/// Invocations that share rows.
const LANES: u32 = 64;
/// Rows of a matrix from which there are workgroups enough for a large GPU with four rows each.
const MANY: usize = 2048;

/// Rows of the matrix that share what is read of the others.
fn products(caps: &Capabilities, n: usize) -> usize {
    match (caps.software, caps.reduces_by_subgroup()) {
        (true, _) => 1,
        (_, true) if n >= MANY => 4,
        _ => 2,
    }
}

/// `matvec_rows_forward`. Bindings: a, b, c, range, and the residual and the bias where `output` has them.
///
/// # Errors
/// `limit-exceeded` when a workgroup does not fit.
pub fn matvec_rows(caps: &Capabilities, shape: MatvecRowsShape) -> Result<Kernel> {
    let spec = KernelSpec::MatvecRows(shape);
    let name = spec.name();
    let MatvecRowsShape { n, k, rows, stride, weights, .. } = shape;
    let (columns, products) = (rows.next_power_of_two().min(MOST_COLUMNS), products(caps, n));
    let sums = columns * products;
    let packed = weights.packs(k);
    let subgroups = caps.reduces_by_subgroup() && !caps.software;
    let size = workgroup_size(caps, if caps.software { 8 } else { LANES }, 1, name)?;
    let lanes = if caps.software { 1 } else { size as usize };
    let parts = match (caps.software, subgroups) {
        (true, _) => 0,
        (_, true) => size.div_ceil(4),
        _ => size + 1,
    };
    check_storage(caps, 4 * parts * sums as u32, name)?;
    let composer = Composer::new(spec, size)
        .size("N", n)
        .size("K", k)
        .size("STRIDE", stride)
        .size("LANES", lanes)
        .size("VECTORS", k.div_ceil(if packed { UNIT } else { 4 }))
        .unrolled("COLUMNS", columns)
        .unrolled("PRODUCTS", products)
        .unrolled("SUMS", sums)
        .module(shader!("lib/flat"))
        .module(shader!("lib/range"));
    let (composer, bindings) = operands(composer, shape);
    let (composer, meeting) = if caps.software {
        (composer.module(shader!("lib/matvec_rows/meet_alone")), "")
    } else if subgroups {
        (composer.subgroup_module(shader!("lib/matvec_rows/meet_subgroup")), ", subgroup")
    } else {
        (composer.module(shader!("lib/matvec_rows/meet_shared")), "")
    };
    let width = match (packed, k.is_multiple_of(4)) {
        (true, _) => weights.name(),
        (false, true) => "vec4",
        (false, false) => "scalar",
    };
    composer.module(shader!("03_matvec_rows")).finish(
        caps,
        &bindings,
        Grid::Flat {
            rows: columns,
            per_block: n.div_ceil(products),
            per_group: size as usize / lanes,
        },
        format!("{lanes} lanes for {products} rows by {columns}, {width}{meeting}"),
        "a few rows: each weight is read once for all of them",
    )
}

/// The modules that read rows and matrix and say what is added, and what is bound for them.
fn operands(composer: Composer, shape: MatvecRowsShape) -> (Composer, Vec<Binding>) {
    let MatvecRowsShape { n, k, output, weights, .. } = shape;
    let packed = weights.packs(k);
    let composer = if packed {
        weights.module(composer, n * k).module(shader!("lib/matvec_rows/packed"))
    } else {
        composer
            .module(if k.is_multiple_of(4) {
                shader!("lib/matvec_rows/vec4")
            } else {
                shader!("lib/matvec_rows/scalar")
            })
            .module(shader!("lib/matvec_rows/plain"))
    };
    let (composer, more): (_, &[_]) = match output {
        Output::Mode(_) => (composer.module(shader!("lib/matvec_rows/store")), &[]),
        Output::Residual => {
            (composer.module(shader!("lib/matvec_rows/store_residual")), &["residual"])
        }
        Output::Bias => (composer.module(shader!("lib/matvec_rows/store_bias")), &["bias"]),
        Output::BiasedResidual => (
            composer.module(shader!("lib/matvec_rows/store_biased_residual")),
            &["residual", "bias"],
        ),
    };
    let matrix = if packed { "packed" } else { "b" };
    let mut bindings = vec![read("a"), read(matrix), read_write("c"), uniform("range")];
    bindings.extend(more.iter().copied().map(read));
    (composer, bindings)
}
