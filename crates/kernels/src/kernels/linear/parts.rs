//! What all forms of the matrix-vector product share: bindings, and the modules of results.

use crate::error::{Error, Result};
use crate::kernels::compose::{Binding, Composer, read, read_write, uniform};
use crate::kernels::modules::{activation_module, key_rows};
use crate::kernels::shape::{AttentionShape, MatvecInput, MatvecOutput, MatvecShape, NewestKey};

impl MatvecOutput {
    /// Rows of the matrix in each of N results.
    pub(crate) const fn products(self) -> usize {
        match self {
            Self::Plain | Self::Added | Self::Residual | Self::Bias | Self::BiasedResidual => 1,
            Self::Gated(_) | Self::Heads(_) | Self::BiasedHeads(_) => 2,
        }
    }

    /// What a variant is called by.
    pub(super) const fn fused(self, normed: bool) -> &'static str {
        match self {
            Self::Added => ", added",
            Self::Residual => ", residual",
            Self::BiasedResidual => ", residual and bias",
            Self::Gated(_) => ", norm and activation fused",
            Self::Heads(_) => ", norm, rotation and append fused",
            Self::BiasedHeads(_) => ", norm, bias, rotation and append fused",
            Self::Plain if normed => ", norm fused",
            Self::Plain | Self::Bias => "",
        }
    }
}

/// What a product binds.
pub(super) fn bindings(shape: MatvecShape) -> Result<Vec<Binding>> {
    let MatvecShape { k, input, output, weights, .. } = shape;
    let normed = matches!(input, MatvecInput::Norm { .. });
    let ranges = matches!(input, MatvecInput::Ranges(..));
    let fits = match output {
        MatvecOutput::Plain => true,
        MatvecOutput::Bias => false,
        MatvecOutput::Added | MatvecOutput::Residual | MatvecOutput::BiasedResidual => !normed,
        MatvecOutput::Gated(_) | MatvecOutput::Heads(_) | MatvecOutput::BiasedHeads(_) => normed,
    };
    if !fits {
        return Err(Error::internal("no product has both this input and this output"));
    }
    let matrix = if weights.packs(k) { "packed" } else { "b" };
    let heads = matches!(output, MatvecOutput::Heads(_) | MatvecOutput::BiasedHeads(_));
    let first = read(if ranges { "partials" } else { "a" });
    let mut bindings = vec![first, read(matrix), read_write("c")];
    if normed {
        bindings.push(read("norm_weight"));
    } else if matches!(output, MatvecOutput::Residual | MatvecOutput::BiasedResidual) {
        bindings.push(read("residual"));
    }
    if heads {
        bindings.extend([uniform("step"), read("angles"), read_write("cache")]);
    }
    if matches!(output, MatvecOutput::BiasedHeads(_) | MatvecOutput::BiasedResidual) {
        bindings.push(read("bias"));
    }
    if matches!(input, MatvecInput::Ranges(.., NewestKey::Apart)) {
        bindings.extend([read("query"), read("cache")]);
    }
    if ranges {
        bindings.push(uniform("step"));
    }
    Ok(bindings)
}

/// Says whether a norm is in front of a product, and its epsilon.
pub(in crate::kernels) fn norm_operand(
    composer: Composer,
    input: MatvecInput,
    by_vectors: bool,
) -> Composer {
    let composer = composer.vectors(if by_vectors { 4 } else { 1 });
    match input {
        MatvecInput::Norm { epsilon } => {
            composer.when("NORMED", true).float("EPSILON", epsilon.0 as f32)
        }
        MatvecInput::Plain | MatvecInput::Ranges(..) => composer.when("NORMED", false),
    }
}

/// Says which rows belong to a result, and what becomes of it.
pub(super) fn results(composer: Composer, first: usize, output: MatvecOutput) -> Composer {
    let form = match output {
        MatvecOutput::Plain => "",
        MatvecOutput::Added => "ADDED_IN_PLACE",
        MatvecOutput::Residual => "RESIDUAL",
        MatvecOutput::Bias | MatvecOutput::BiasedResidual => "BIASED_RESIDUAL",
        MatvecOutput::Gated(_) => "GATED",
        MatvecOutput::Heads(_) | MatvecOutput::BiasedHeads(_) => "HEADS_OF_ROW",
    };
    let forms = ["ADDED_IN_PLACE", "RESIDUAL", "BIASED_RESIDUAL", "GATED", "HEADS_OF_ROW"];
    let composer = composer.one_of(&forms, form);
    match output {
        MatvecOutput::Gated(activation) => {
            activation_module(composer.size("FIRST", first), activation)
        }
        MatvecOutput::Heads(shape) => heads(composer, &shape, false),
        MatvecOutput::BiasedHeads(shape) => heads(composer, &shape, true),
        _ => composer.size("FIRST", first),
    }
}

/// The constants of what makes heads of the products.
pub(super) fn heads(composer: Composer, shape: &AttentionShape, biased: bool) -> Composer {
    key_rows(composer, shape.ring)
        .when("BIASED", biased)
        .size("HEADS", shape.heads)
        .size("KV_HEADS", shape.kv_heads)
        .size("HEAD_DIM", shape.head_dim)
        .size("HALF", shape.head_dim / 2)
}
