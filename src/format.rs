//! How values are stored and written, as far as rooms share it.

/// How a kernel writes a gradient.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum WriteMode {
    Overwrite,
    Add,
    /// Overwrites on the first micro-step of an accumulation, adds on the others.
    AddAfterFirst,
}

impl WriteMode {
    /// The constant of `lib/write_mode.wgsl`.
    pub(crate) const fn constant(self) -> u32 {
        self as u32
    }
}
