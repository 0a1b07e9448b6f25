//! The product with the matrix of gate and up that goes on to the gate's result: a workgroup has as many columns of gate as of
//! up, so that neither is written.

use super::tile::pick;
use crate::caps::Capabilities;
use crate::format::Element;
use crate::products::{Form, LinearShape, LinearTile};

/// Whether a product by this tile can go on from its sums: by matrices, into f16, of tiles without remainder, of which each
/// subgroup has columns of gate alone or of up alone.
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

/// Whether the product that is picked for a shape gives the gate's result, with K whole.
pub fn linear_gates(caps: &Capabilities, shape: &LinearShape) -> bool {
    let pick = pick(caps, shape);
    pick.splits == 1 && tile_gates(shape, pick.tile)
}
