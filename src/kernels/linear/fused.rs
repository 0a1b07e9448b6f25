//! Products that compute what is behind them: their sums go on from registers, so that no other dispatch reads them
//! again.

use super::tile::pick;
use crate::caps::Capabilities;
use crate::config::Activation;
use crate::format::{Element, WeightFormat};
use crate::kernels::compose::{Binding, Composer, Module, read, read_write, shader};
use crate::kernels::modules::activation_module;
use crate::kernels::shape::Fused;
use crate::products::{Form, LinearShape, LinearTile};

impl Fused {
    /// The product behind which this can be.
    const fn form(self) -> Form {
        match self {
            Self::Gated { .. } | Self::Turned(_) => Form::MatmulT,
            Self::GateGradient { .. } => Form::Matmul,
        }
    }

    /// How far apart two columns of a product are that belong together, if any do.
    const fn apart(self, shape: &LinearShape) -> Option<usize> {
        match self {
            Self::Gated { .. } => Some(shape.n / 2),
            Self::GateGradient { .. } => None,
            Self::Turned(rope) => Some(rope.head_dim / 2),
        }
    }

    /// What is bound last, in this order.
    pub(super) fn bindings(self) -> &'static [Binding] {
        const GATES: [Binding; 2] = [read("gate_up"), read_write("activated")];
        const TURNS: [Binding; 2] = [read("table"), read("documents")];
        match self {
            Self::Gated { .. } => &GATES[1..],
            Self::GateGradient { .. } => &GATES,
            Self::Turned(_) => &TURNS,
        }
    }

    /// What a variant is called by.
    pub(super) const fn label(self) -> &'static str {
        match self {
            Self::Gated { .. } => ", activation fused",
            Self::GateGradient { .. } => ", activation's gradient fused",
            Self::Turned(_) => ", rotation fused",
        }
    }

    /// The modules that store sums, with their constants.
    pub(super) fn stores(self, composer: Composer) -> Composer {
        match self {
            Self::Gated { activation } => {
                activated(composer, activation).module(shader!("lib/linear/store_gated"))
            }
            Self::GateGradient { activation } => {
                activated(composer, activation).module(shader!("lib/linear/store_gate_gradient"))
            }
            Self::Turned(rope) => composer
                .size("TURNED", rope.heads * rope.head_dim)
                .module(shader!("lib/linear/store_turned")),
        }
    }

    /// Whether columns of a product are what this goes on from: of heads, all of those that turn do so as a whole.
    const fn goes_on_from(self, shape: &LinearShape) -> bool {
        match self {
            Self::Gated { .. } | Self::GateGradient { .. } => true,
            Self::Turned(rope) => rope.dims == rope.head_dim && rope.stride == shape.n,
        }
    }

    /// Whether a tile of a product can compute this from what its invocations hold.
    pub(crate) fn fits(self, caps: &Capabilities, shape: &LinearShape, tile: LinearTile) -> bool {
        let LinearTile::Tiled { bm, bn, bk, tm, tn } = tile else { return false };
        let plain = shape.form == self.form()
            && self.goes_on_from(shape)
            && shape.c_stride == shape.n
            && !shape.padded
            && !shape.half
            && (shape.a, shape.b, shape.c) == (Element::F32, WeightFormat::F32, Element::F32)
            && shape.by_vectors();
        let pairs = self.apart(shape).is_none_or(|apart| {
            let half = bn / 2;
            let loaded = bm / tm * (bn / tn) / (bk / 4);
            shape.n.is_multiple_of(2 * apart)
                && apart.is_multiple_of(4)
                && tn.is_multiple_of(8)
                && (loaded == half || loaded == bn)
        });
        // Its own are the operands and the result.
        let storage = 3 + self.bindings().len();
        plain && pairs && storage <= caps.limits.max_storage_buffers_per_shader_stage as usize
    }
}

fn activated(composer: Composer, activation: Activation) -> Composer {
    composer.module(shader!("lib/math")).module(activation_module(activation))
}

/// How an invocation stores the vectors of a row: by themselves, or in pairs.
pub(super) fn stored_rows(
    composer: Composer,
    shape: &LinearShape,
    fused: Option<Fused>,
    vectors: usize,
) -> Composer {
    let apart = fused.and_then(|fused| fused.apart(shape));
    let pairs = if apart.is_some() { vectors / 2 } else { 0 };
    let composer = composer.unrolled("SINGLES", vectors - 2 * pairs).unrolled("PAIRS", pairs);
    apart.into_iter().fold(composer, |composer, apart| composer.size("APART", apart))
}

/// Which columns a tile has, where they are rows of the second operand.
pub(super) fn columns(shape: &LinearShape, fused: Option<Fused>) -> &'static Module {
    match fused.and_then(|fused| fused.apart(shape)) {
        Some(_) => shader!("lib/linear/columns_pairs"),
        None => shader!("lib/linear/columns"),
    }
}

/// Whether the product that is picked for a shape can compute what is behind it too: by a tile in workgroup memory,
/// with K whole, rows in f32 by vectors, and both columns of a pair in one invocation. Elsewhere each has a dispatch.
pub fn linear_fuses(caps: &Capabilities, shape: &LinearShape, fused: Fused) -> bool {
    let pick = pick(caps, shape);
    pick.splits == 1 && fused.fits(caps, shape, pick.tile)
}
