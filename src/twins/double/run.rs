//! One dispatch: its spec's twin over its bindings.

use super::memory::{Memory, Operand};
use super::operands::Operands;
use crate::error::Result;
use crate::kernels::Kernel;
use crate::plan::Range;
use crate::twins::Twin;

/// Executes a dispatch.
///
/// # Errors
/// `internal` for a spec that has no twin here, and where bindings are not those of the spec.
pub(super) fn dispatch(
    kernel: &Kernel,
    bound: &[Operand],
    ranges: &[Range],
    memory: &mut Memory,
) -> Result<()> {
    let mut operands = Operands::take(kernel, bound, ranges, memory)?;
    kernel.spec.run(&mut operands)?;
    #[cfg(test)]
    super::underflow_tests::watch(kernel.spec, &operands);
    operands.put(memory)
}
