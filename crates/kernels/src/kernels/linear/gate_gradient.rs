//! The product that gives the gradient of a gate's result, and from it those of gate and up: its sums go on from
//! registers, so that no other dispatch reads them again.

use super::tile::pick;
use crate::caps::Capabilities;
use crate::format::{Element, WeightFormat};
use crate::kernels::compose::{Binding, read, read_write};
use crate::products::{Form, LinearShape, LinearTile};

/// What is bound last, in this order.
pub(super) const BINDINGS: [Binding; 2] = [read("gate_up"), read_write("activated")];

/// Whether a product by this tile can go on from its sums: they are in f32, by vectors, in rows that nothing separates.
pub fn tile_gives_gate_gradient(shape: &LinearShape, tile: LinearTile) -> bool {
    matches!(tile, LinearTile::Tiled { .. })
        && shape.form == Form::Matmul
        && shape.c_stride == shape.n
        && !shape.padded
        && !shape.half
        && (shape.a, shape.b, shape.c) == (Element::F32, WeightFormat::F32, Element::F32)
        && shape.by_vectors()
}

/// Most results of a product that are fewer microseconds' work than the host's for a dispatch.
const SMALL: u64 = 128 << 10;

/// Whether the product that is picked for a shape gives the gradients of gate and up: by a large tile in workgroup
/// memory, or with few results, and with K whole. Elsewhere these have a dispatch. By 64×64, 8×4 each, the product of 512
/// tokens of seed takes 8 µs longer on an H200, as long as that dispatch.
pub fn linear_gives_gate_gradient(caps: &Capabilities, shape: &LinearShape) -> bool {
    let pick = pick(caps, shape);
    let large = matches!(pick.tile, LinearTile::Tiled { tm: 8, tn: 8, .. });
    let small = shape.part_elements() <= SMALL;
    (large || small) && pick.splits == 1 && tile_gives_gate_gradient(shape, pick.tile)
}
