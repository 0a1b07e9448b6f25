//! Products with matrices: of many rows, of one row and of a few, with packed weights.

#[cfg(feature = "testing")]
pub(crate) mod cases;
mod choice;
pub(super) mod gate_gradient;
pub(super) mod gated;
pub(super) mod gradient;
pub(super) mod matrix;
pub(super) mod matvec;
pub(super) mod product;
pub(super) mod row;
mod rows;
mod sum;
pub(super) mod team;
pub(super) mod tile;
#[cfg(feature = "testing")]
pub(crate) mod twin;

pub use gradient::{GradientParts, GradientSums};
pub use matvec::{Matvec, MatvecInput, MatvecOutput, MatvecRows};
pub use product::{AdaptedProduct, LinearProduct};
pub use sum::LinearSum;
