//! How far a long call is, and whether its caller still wants it.

use crate::error::{Error, ErrorCode, Result};

/// Called between the pieces of a long call with what is done, what there is in all, and what comes
/// next; a true answer ends the call.
#[derive(Clone, Copy)]
pub struct Progress<'a>(pub &'a dyn Fn(u64, u64, &'static str) -> bool);

/// The callback of a [`Progress`] that outlives its caller.
pub type ProgressCallback = Box<dyn Fn(u64, u64, &'static str) -> bool>;

/// Lets every call run to its end.
pub const NO_PROGRESS: Progress<'static> = Progress(&|_, _, _| false);

impl Progress<'_> {
    /// Tells how far the call is.
    ///
    /// # Errors
    /// `aborted` when the caller wants no more of it.
    pub fn report(self, done: usize, total: usize, stage: &'static str) -> Result<()> {
        if (self.0)(done as u64, total as u64, stage) {
            return Err(Error::new(ErrorCode::Aborted, "the caller ended the operation"));
        }
        Ok(())
    }
}

impl std::fmt::Debug for Progress<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Progress")
    }
}
