//! Which kernels were installed, on any device of this thread: a test that makes models and sessions depends on these.

use crate::kernels::Kernel;
use std::cell::RefCell;
use std::collections::BTreeSet;

/// Kernels of plans that were installed, those among them whose pipeline was there already.
#[derive(Debug, Default)]
pub struct Installed {
    /// Entry points.
    pub names: BTreeSet<&'static str>,
    /// What the texts were joined from: [`Kernel::modules`].
    pub modules: BTreeSet<&'static str>,
}

thread_local! {
    static INSTALLED: RefCell<Installed> = RefCell::default();
}

pub(super) fn note(kernel: &Kernel) {
    INSTALLED.with_borrow_mut(|installed| {
        installed.names.insert(kernel.name);
        installed.modules.extend(&kernel.modules);
    });
}

/// What was installed since the last call.
pub(super) fn take() -> Installed {
    INSTALLED.take()
}
