//! One dispatch: its spec's twin over its bindings.

use super::memory::{Memory, Operand};
use crate::error::Result;
use crate::kernels::{Access, Kernel};
use crate::plan::{RANGE_STRIDE, Range};
use crate::twins::{Operands, Twin};

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
    let mut operands = take(kernel, bound, ranges, memory)?;
    kernel.spec.run(&mut operands)?;
    #[cfg(test)]
    super::underflow_tests::watch(kernel.spec, &operands);
    put(operands, bound, memory)
}

/// The operands as memory has them.
fn take<'a>(
    kernel: &'a Kernel,
    bound: &[Operand],
    ranges: &[Range],
    memory: &Memory,
) -> Result<Operands<'a>> {
    let words = |(_, slice): &Operand| {
        let Some(buffer) = slice.buffer else {
            // A range, and then zeros for who binds more.
            let range = &ranges[(slice.offset / RANGE_STRIDE) as usize];
            let mut words = bytemuck::cast_slice(bytemuck::bytes_of(range)).to_vec();
            words.resize(slice.bytes as usize / 4, 0);
            return Ok(words);
        };
        Ok(memory.words(buffer)?[slice.words()].to_vec())
    };
    let words = bound.iter().map(words).collect::<Result<_>>()?;
    Ok(Operands::new(kernel, bound.iter().map(|(binding, _)| *binding).collect(), words))
}

/// Writes back what the kernel may write.
fn put(operands: Operands<'_>, bound: &[Operand], memory: &mut Memory) -> Result<()> {
    for ((binding, slice), words) in bound.iter().zip(operands.into_words()) {
        if let (Access::ReadWrite, Some(buffer)) = (binding.access, slice.buffer) {
            memory.words_mut(buffer)?[slice.words()].copy_from_slice(&words);
        }
    }
    Ok(())
}
