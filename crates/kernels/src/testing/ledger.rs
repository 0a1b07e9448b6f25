//! What a case depends on, as one hash, without running a kernel.
//!
//! A case is *listed*: its body runs, every job and every expected result goes into a hash, and neither is executed or
//! compared. So the hash changes with a kernel's text, its grid and sizes, with the operands, the oracle's results and the
//! tolerances, and with nothing else. A lane runs the cases whose hash has not passed before.

use super::harness::{Job, Outputs};
use crate::kernels::Access;
use crate::random::{philox, split};
use std::cell::RefCell;
use std::hash::{DefaultHasher, Hash, Hasher};

thread_local! {
    /// The hash of the case that is being listed on this thread; none while cases run.
    static LISTED: RefCell<Option<DefaultHasher>> = const { RefCell::new(None) };
}

/// Lists from now on, until [`end`].
pub fn begin() {
    LISTED.set(Some(DefaultHasher::new()));
}

/// Ends a listing, and gives its hash.
pub fn end() -> u64 {
    LISTED.take().map_or(0, |hasher| hasher.finish())
}

/// Whether a case is being listed.
pub(crate) fn listing() -> bool {
    LISTED.with_borrow(Option::is_some)
}

/// Where a case is being listed, hashes what it expects; gives whether it is.
pub(crate) fn listed(what: impl Hash) -> bool {
    LISTED.with_borrow_mut(|listed| listed.as_mut().map(|hasher| what.hash(hasher)).is_some())
}

/// The bits of numbers, to hash them.
pub(crate) struct Bits<'a>(pub &'a [f64]);

impl Hash for Bits<'_> {
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.0.len().hash(state);
        self.0.iter().for_each(|x| state.write_u64(x.to_bits()));
    }
}

/// What an oracle gives, computed where a case is listed alone.
pub(crate) struct Given<F>(pub F);

impl<T: Hash, F: Fn() -> T> Hash for Given<F> {
    fn hash<H: Hasher>(&self, state: &mut H) {
        (self.0)().hash(state);
    }
}

/// What stands for the outputs of a listed job: numbers that depend on its key. An oracle may go on from them, so they
/// are finite whatever they are read as: of f32 below 0.01, of f16 from 0.5 to 1, of bytes any.
pub(crate) fn stand_in(job: &Job, key: u64) -> Outputs {
    let numbers = |index: usize, len: usize| -> Vec<u32> {
        let word = |i: usize| {
            let words = philox([(i / 4) as u32, index as u32, 0, 0], split(key));
            0x3800_3800 | words[i % 4] & 0x03ff_03ff
        };
        (0..len).map(word).collect()
    };
    let all = job.kernel.bindings.iter().zip(&job.operands);
    let written = all.filter(|(binding, _)| binding.access == Access::ReadWrite);
    Outputs::all(
        written.enumerate().map(|(index, (_, operand))| numbers(index, operand.contents().len())),
    )
}

/// Everything that decides what a job leaves: the text, the grid, each operand's words.
pub(crate) fn key(job: &Job) -> u64 {
    let mut hasher = DefaultHasher::new();
    let Job { kernel, rows, operands, repeat } = job;
    (&kernel.wgsl, kernel.name, &kernel.bindings, kernel.grid, kernel.sizes, rows, repeat)
        .hash(&mut hasher);
    operands.len().hash(&mut hasher);
    for operand in operands {
        operand.contents().hash(&mut hasher);
    }
    hasher.finish()
}
