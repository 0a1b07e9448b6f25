//! What selection knows of a tile.

use crate::products::LinearTile;

/// A tile that selection may take, and what its cost is estimated from.
#[derive(Debug)]
pub(super) struct Choice {
    pub tile: LinearTile,
    /// Time of a multiply-add, the largest tile's being 1: a smaller one reads each operand more often.
    pub factor: f64,
    /// Workgroups that a compute unit must hold to be busy: it takes as long for fewer.
    pub busy: f64,
    /// Time of a workgroup before and after its part of K, in steps of K.
    pub edges: f64,
    /// Workgroups that a compute unit runs together: fewer take as long.
    pub together: usize,
    /// Time of an element of a part of K on a [`GpuClass::LARGE`](crate::caps::GpuClass), written and added up.
    pub part: f64,
}

/// [`Choice::part`] where the products' own arithmetic hides most of it.
pub(super) const PART: f64 = 0.15;
