//! The product with the matrix of gate and up, and the gated activation, in one kernel. A workgroup computes as many
//! columns of gate as of up. It writes only the activation's result.

use super::tile::pick;
use crate::caps::Capabilities;
use crate::format::Element;
use crate::products::{Form, LinearShape, LinearTile};

/// Whether the kernel of this tile can compute the gate from its sums. The tile must be of subgroup matrices, its result in
/// f16, and the columns whole tiles. Each subgroup must have columns of gate alone or of up alone.
pub fn tile_gates(shape: &LinearShape, tile: LinearTile) -> bool {
    let LinearTile::Matrix { bn, wn, .. } = tile else { return false };
    shape.form == Form::MatmulT
        && shape.c == Element::F16
        && shape.by_vectors()
        && !shape.padded
        && shape.n == 2 * shape.c_stride
        && shape.n.is_multiple_of(bn)
        && bn.is_multiple_of(2 * wn)
}

/// Whether the product that is picked for a shape can compute the gate. K must not be split.
pub fn linear_gates(caps: &Capabilities, shape: &LinearShape) -> bool {
    let pick = pick(caps, shape);
    pick.splits == 1 && tile_gates(shape, pick.tile)
}
