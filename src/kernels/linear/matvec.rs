//! The matrix-vector product: the linear layer of a single decoded token, with the norm before it
//! and the activation after it.

use crate::caps::Capabilities;
use crate::error::{Error, Result};
use crate::kernels::compose::{
    Binding, Composer, Grid, Kernel, Module, read, read_write, shader, uniform,
};
use crate::kernels::limits::{check_storage, workgroup_size};
use crate::kernels::modules::{activation_module, key_rows, with_terms};
use crate::kernels::shape::{AttentionShape, MatvecInput, MatvecOutput, MatvecShape};
use crate::kernels::spec::KernelSpec;

impl MatvecOutput {
    /// Rows of the matrix in each of N results.
    pub(crate) const fn products(self) -> usize {
        match self {
            Self::Plain | Self::Residual => 1,
            Self::Gated(_) | Self::Heads(_) | Self::BiasedHeads(_) => 2,
        }
    }
}

/// Most invocations that share a row, and most vectors that an invocation loads at a time.
const LANES: usize = 64;
const ON_THEIR_WAY: usize = 8;

/// Whether [`matvec`] should also compute the norm before it, once per row of the matrix. A CPU, where a row
/// has one invocation, pays more for that than for a pass.
pub fn matvec_fuses(caps: &Capabilities) -> bool {
    !caps.software
}

/// `matvec_forward`. Bindings: a, b, c, range, and the norm's weight or the residual; see
/// [`MatvecOutput::Heads`] for that one's.
///
/// # Errors
/// `limit-exceeded` when a workgroup does not fit.
pub fn matvec(caps: &Capabilities, shape: MatvecShape) -> Result<Kernel> {
    let spec = KernelSpec::Matvec(shape);
    let name = spec.name();
    let MatvecShape { n, k, input, output, weights } = shape;
    let packed = weights.packs(k);
    let elements = if packed { weights.elements() } else { 4 };
    // A row is read by as many neighbours as it keeps busy, all of whose loads are on their way
    // before the first is needed. A CPU gains nothing from neighbours and loses at barriers.
    let (most_lanes, wanted) = if caps.software { (1, 8) } else { (LANES, LANES as u32) };
    let size = workgroup_size(caps, wanted, 1, name)?;
    let vectors = k.div_ceil(elements);
    let lanes = vectors.next_power_of_two().clamp(1, most_lanes).min(size as usize);
    let turns = vectors / lanes;
    let unrolled = turns.clamp(1, (ON_THEIR_WAY * 4 / elements).max(1));
    let normed = matches!(input, MatvecInput::Norm(_));
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
        MatvecOutput::Gated(_) => ", norm and activation fused",
        MatvecOutput::Heads(_) => ", norm, rotation and append fused",
        MatvecOutput::BiasedHeads(_) => ", norm, bias, rotation and append fused",
        MatvecOutput::Plain if normed => ", norm fused",
        MatvecOutput::Plain => "",
    };
    let width = match (packed, by_vectors) {
        (true, _) => weights.name(),
        (false, true) => "vec4",
        (false, false) => "scalar",
    };
    composer.module(shader!("03_matvec")).finish(
        caps,
        &bindings(shape)?,
        flat.fixed(caps, 1)?,
        format!("{lanes} lanes per row, {width}{fused}"),
        "one row: each weight is read once, by neighbours",
    )
}

/// What a product binds.
fn bindings(MatvecShape { k, input, output, weights, .. }: MatvecShape) -> Result<Vec<Binding>> {
    let normed = matches!(input, MatvecInput::Norm(_));
    let fits = match output {
        MatvecOutput::Plain => true,
        MatvecOutput::Residual => !normed,
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
    } else if output == MatvecOutput::Residual {
        bindings.push(read("residual"));
    }
    if heads {
        bindings.extend([read("table"), read_write("cache")]);
    }
    if matches!(output, MatvecOutput::BiasedHeads(_)) {
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
        MatvecInput::Norm(terms) => with_terms(composer, terms)
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
        MatvecOutput::Gated(activation) => rows(composer)
            .module(shader!("lib/math"))
            .module(activation_module(activation))
            .module(shader!("lib/matvec/store_gated")),
        MatvecOutput::Heads(shape) => heads(composer, &shape, shader!("lib/matvec/heads")),
        MatvecOutput::BiasedHeads(shape) => {
            heads(composer, &shape, shader!("lib/matvec/heads_biased"))
        }
    }
}

/// `store` is the module that makes heads of the products.
fn heads(composer: Composer, shape: &AttentionShape, store: &'static Module) -> Composer {
    key_rows(composer, shape.ring)
        .size("HEADS", shape.heads)
        .size("KV_HEADS", shape.kv_heads)
        .size("HEAD_DIM", shape.head_dim)
        .size("HALF", shape.head_dim / 2)
        .module(shader!("lib/step"))
        .module(store)
}

/// The modules that read a vector of f32 and a packed matrix of `products` times N rows.
fn packed_operands(composer: Composer, shape: MatvecShape, products: usize) -> Composer {
    let composer = shape
        .weights
        .module(composer, products * shape.n * shape.k)
        .module(shader!("lib/matvec/packed"));
    match shape.input {
        MatvecInput::Plain => composer.module(shader!("lib/matvec/packed_plain")),
        MatvecInput::Norm(terms) => {
            with_terms(composer, terms).module(shader!("lib/matvec/packed_norm"))
        }
    }
}
