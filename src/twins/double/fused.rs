//! What products compute beside their sums.

use super::attention::rotated;
use super::operands::Operands;
use crate::error::Result;
use crate::kernels::{Fused, LinearShape};
use crate::twins::activation::{gated_activation_backward, gated_activation_forward};

/// Goes on from rows of N sums.
pub(super) fn store(
    on: &mut Operands,
    shape: &LinearShape,
    fused: Fused,
    product: &[f32],
) -> Result<()> {
    match fused {
        Fused::Gated { activation } => {
            let activated = gated_activation_forward(activation, product, shape.n / 2);
            on.write("c", 0, product)?;
            on.write("activated", 0, &activated)
        }
        Fused::Turned(rope) => {
            let (mut rows, step) = (product.to_vec(), on.step()?);
            let (table, documents) = (on.f32("table")?, on.u32("documents")?);
            let position =
                |t: usize| (step.position + t as u32).wrapping_sub(documents[t]) as usize;
            rotated(&mut rows, rope, table, position, true);
            on.write("c", 0, &rows)
        }
        Fused::GateGradient { activation } => {
            let gate_up = on.first("gate_up", 2 * product.len())?;
            let (gradient, activated) =
                gated_activation_backward(activation, gate_up, product, shape.n);
            on.write("c", 0, &gradient)?;
            on.write("activated", 0, &activated)
        }
    }
}
