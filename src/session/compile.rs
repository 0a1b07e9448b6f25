//! Kernels that are compiled before what needs them is made.

use super::progress::Progress;
use crate::error::Result;
use crate::gpu::{Gpu, LocalFuture};
use crate::kernels::Kernel;
use crate::plan::Plan;

/// Each distinct kernel of the plans once.
pub(super) fn distinct<'a>(plans: impl IntoIterator<Item = &'a Plan>) -> Vec<Kernel> {
    let mut kernels: Vec<Kernel> = vec![];
    for kernel in plans.into_iter().flat_map(|plan| &plan.kernels) {
        if kernels.iter().all(|known| known.wgsl != kernel.wgsl) {
            kernels.push(kernel.clone());
        }
    }
    kernels
}

/// Compiles kernels that no call has compiled.
///
/// # Arguments
/// `side_by_side`: kernels that a GPU's host compiles at a time. An end of the call does not stop these.
///
/// # Errors
/// `device-lost`, `aborted`.
pub(super) async fn compile_ahead(
    gpu: &dyn Gpu,
    kernels: &[Kernel],
    side_by_side: usize,
    progress: Progress<'_>,
) -> Result<()> {
    let total = kernels.len();
    // On a CPU side by side takes longer than one after the other.
    let most = if gpu.capabilities().software { 1 } else { side_by_side };
    let mut compiling: Vec<Option<LocalFuture<Result<()>>>> = vec![];
    for done in 0..total {
        progress.report(done, total, "compile kernels")?;
        let begun = compiling.len()..total.min(done + most);
        compiling.extend(kernels[begun].iter().map(|kernel| Some(gpu.compile(kernel))));
        if let Some(compiled) = compiling[done].take() {
            compiled.await?;
        }
    }
    progress.report(total, total, "compile kernels")
}
