//! The matrix-vector product: the linear layer of a single decoded token, with the norm before it
//! and the activation after it.

use crate::caps::Capabilities;
use crate::error::{Error, Result};
use crate::kernels::compose::{
    Binding, Composer, Grid, Kernel, Module, read, read_write, shader, uniform,
};
use crate::kernels::limits::{check_storage, workgroup_size};
use crate::kernels::modules::{UNIT, activation_module, key_rows};
use crate::kernels::shape::{AttentionShape, MatvecInput, MatvecOutput, MatvecShape};
use crate::kernels::spec::KernelSpec;

impl MatvecOutput {
    /// Rows of the matrix in each of N results.
    pub(crate) const fn products(self) -> usize {
        match self {
            Self::Plain | Self::Residual | Self::Bias | Self::BiasedResidual => 1,
            Self::Gated(_) | Self::Heads(_) | Self::BiasedHeads(_) => 2,
        }
    }
}

/// Most invocations that share a row, and as many where each would else load more than four vectors of a matrix.
const LANES: usize = 64;
const LANES_OF_LONG_ROWS: usize = 128;
/// Most elements that an invocation loads at a time.
const IN_FLIGHT: usize = 32;
/// Fewest invocations of a row whose sums meet by subgroups: fewer would leave most of a subgroup idle.
const SUBGROUP_LANES: usize = 32;

/// Whether [`matvec`] should also compute the norm before it, once per row of the matrix. A CPU, where a row
/// has one invocation, pays more for that than for a pass.
pub fn matvec_fuses(caps: &Capabilities) -> bool {
    !caps.software
}

/// `matvec_forward`. Bindings: a, b, c, range, and the norm's weight, or the residual and the bias; see
/// [`MatvecOutput::Heads`] for that one's.
///
/// # Errors
/// `limit-exceeded` when a workgroup does not fit.
pub fn matvec(caps: &Capabilities, shape: MatvecShape) -> Result<Kernel> {
    let spec = KernelSpec::Matvec(shape);
    let name = spec.name();
    let MatvecShape { n, k, input, output, weights } = shape;
    let packed = weights.packs(k);
    let elements = if packed { UNIT } else { 4 };
    let vectors = k.div_ceil(elements);
    let Row { lanes, size, subgroups } = row(caps, vectors, name)?;
    let turns = vectors / lanes;
    let unrolled = turns.clamp(1, IN_FLIGHT / elements);
    let normed = matches!(input, MatvecInput::Norm { .. });
    let products = output.products();
    let sums = products + usize::from(normed);
    check_storage(caps, 4 * size * sums as u32, name)?;
    let mut composer = Composer::new(spec, size)
        .size("N", n)
        .size("K", k)
        .size("LANES", lanes)
        .size("WHOLE", turns / unrolled * unrolled)
        .unrolled("UNROLLED", unrolled)
        .unrolled("LAST", turns % unrolled)
        .size("REST", vectors % lanes)
        .unrolled("PRODUCTS", products)
        .unrolled("SUMS", sums)
        .module(shader!("lib/flat"));
    let by_vectors = k.is_multiple_of(4);
    composer = if packed {
        packed_operands(composer, shape, products)
    } else {
        operands(composer, input, by_vectors)
    };
    composer = results(composer, output);
    let flat = Grid::Flat { rows: 1, per_block: n, per_group: size as usize / lanes };
    let fused = match output {
        MatvecOutput::Residual => ", residual",
        MatvecOutput::BiasedResidual => ", residual and bias",
        MatvecOutput::Gated(_) => ", norm and activation fused",
        MatvecOutput::Heads(_) => ", norm, rotation and append fused",
        MatvecOutput::BiasedHeads(_) => ", norm, bias, rotation and append fused",
        MatvecOutput::Plain if normed => ", norm fused",
        MatvecOutput::Plain | MatvecOutput::Bias => "",
    };
    let width = match (packed, by_vectors) {
        (true, _) => weights.name(),
        (false, true) => "vec4",
        (false, false) => "scalar",
    };
    composer = if subgroups {
        composer.subgroup_module(shader!("lib/matvec/meet_subgroup"))
    } else {
        composer.module(shader!("lib/matvec/meet_tree"))
    };
    let meeting = if subgroups { ", subgroup" } else { "" };
    composer.module(shader!("03_matvec")).finish(
        caps,
        &bindings(shape)?,
        flat.fixed(caps, 1)?,
        format!("{lanes} lanes per row, {width}{fused}{meeting}"),
        "one row: each weight is read once, by neighbours",
    )
}

/// Who reads a row of the matrix.
struct Row {
    lanes: usize,
    /// Invocations of a workgroup.
    size: u32,
    /// The lanes are the workgroup, and their sums meet by subgroups.
    subgroups: bool,
}

/// A row is read by as many neighbours as it keeps busy, all of whose loads are on their way before the first is
/// needed. A CPU gains nothing from neighbours and loses at barriers.
fn row(caps: &Capabilities, vectors: usize, name: &str) -> Result<Row> {
    let most = if vectors > 4 * LANES { LANES_OF_LONG_ROWS } else { LANES };
    if caps.reduces_by_subgroup() && !caps.software && vectors >= SUBGROUP_LANES {
        let lanes = vectors.next_power_of_two().min(most);
        let size = workgroup_size(caps, lanes as u32, 1, name)?;
        return Ok(Row { lanes: size as usize, size, subgroups: true });
    }
    let (most, wanted) = if caps.software { (1, 8) } else { (LANES, LANES as u32) };
    let size = workgroup_size(caps, wanted, 1, name)?;
    let lanes = vectors.next_power_of_two().clamp(1, most).min(size as usize);
    Ok(Row { lanes, size, subgroups: false })
}

/// What a product binds.
fn bindings(MatvecShape { k, input, output, weights, .. }: MatvecShape) -> Result<Vec<Binding>> {
    let normed = matches!(input, MatvecInput::Norm { .. });
    let fits = match output {
        MatvecOutput::Plain => true,
        MatvecOutput::Bias => false,
        MatvecOutput::Residual | MatvecOutput::BiasedResidual => !normed,
        MatvecOutput::Gated(_) | MatvecOutput::Heads(_) | MatvecOutput::BiasedHeads(_) => normed,
    };
    if !fits {
        return Err(Error::internal("no product has both this input and this output"));
    }
    let matrix = if weights.packs(k) { "packed" } else { "b" };
    let heads = matches!(output, MatvecOutput::Heads(_) | MatvecOutput::BiasedHeads(_));
    let place = if heads { "step" } else { "range" };
    let mut bindings = vec![read("a"), read(matrix), read_write("c"), uniform(place)];
    if normed {
        bindings.push(read("norm_weight"));
    } else if matches!(output, MatvecOutput::Residual | MatvecOutput::BiasedResidual) {
        bindings.push(read("residual"));
    }
    if heads {
        bindings.extend([read("table"), read_write("cache")]);
    }
    if matches!(output, MatvecOutput::BiasedHeads(_) | MatvecOutput::BiasedResidual) {
        bindings.push(read("bias"));
    }
    Ok(bindings)
}

/// The modules that read a vector and a matrix of f32, and the norm between them.
fn operands(composer: Composer, input: MatvecInput, by_vectors: bool) -> Composer {
    let composer = composer.module(if by_vectors {
        shader!("lib/matvec/vec4")
    } else {
        shader!("lib/matvec/scalar")
    });
    match input {
        MatvecInput::Plain => composer.module(shader!("lib/matvec/plain")),
        MatvecInput::Norm { epsilon } => composer
            .float("EPSILON", epsilon.0 as f32)
            .module(if by_vectors {
                shader!("lib/matvec/norm_vec4")
            } else {
                shader!("lib/matvec/norm_scalar")
            })
            .module(shader!("lib/matvec/norm")),
    }
}

/// The modules that say which rows belong to a result, and what becomes of it.
fn results(composer: Composer, output: MatvecOutput) -> Composer {
    let rows = |composer: Composer| {
        composer.module(shader!("lib/range")).module(shader!("lib/matvec/rows"))
    };
    match output {
        MatvecOutput::Plain => rows(composer).module(shader!("lib/matvec/store")),
        MatvecOutput::Residual => rows(composer).module(shader!("lib/matvec/store_residual")),
        MatvecOutput::Bias | MatvecOutput::BiasedResidual => {
            rows(composer).module(shader!("lib/matvec/store_biased_residual"))
        }
        MatvecOutput::Gated(activation) => rows(composer)
            .module(shader!("lib/math"))
            .module(activation_module(activation))
            .module(shader!("lib/matvec/store_gated")),
        MatvecOutput::Heads(shape) => heads(composer, &shape, shader!("lib/matvec/heads_plain")),
        MatvecOutput::BiasedHeads(shape) => {
            heads(composer, &shape, shader!("lib/matvec/heads_biased"))
        }
    }
}

/// What makes heads of the products; `bias` is the module of the bias on them.
fn heads(composer: Composer, shape: &AttentionShape, bias: &'static Module) -> Composer {
    key_rows(composer, shape.ring)
        .size("HEADS", shape.heads)
        .size("KV_HEADS", shape.kv_heads)
        .size("HEAD_DIM", shape.head_dim)
        .size("HALF", shape.head_dim / 2)
        .module(shader!("lib/step"))
        .module(bias)
        .module(shader!("lib/matvec/heads"))
}

/// The modules that read a vector of f32 and a packed matrix of `products` times N rows.
fn packed_operands(composer: Composer, shape: MatvecShape, products: usize) -> Composer {
    let composer = shape
        .weights
        .module(composer, products * shape.n * shape.k)
        .module(shader!("lib/matvec/packed"));
    match shape.input {
        MatvecInput::Plain => composer.module(shader!("lib/matvec/packed_plain")),
        MatvecInput::Norm { epsilon } => {
            composer.float("EPSILON", epsilon.0 as f32).module(shader!("lib/matvec/packed_norm"))
        }
    }
}
