//! Every kernel that a model asks for, at shapes that reach every branch of selection: for tests
//! that need no GPU.

use crate::caps::Capabilities;
use crate::error::Result;
use crate::kernels::{Kernel, families};

/// A kernel by what it is for, or why these capabilities have none.
pub type Entry = (String, Result<Kernel>);

/// Rows and columns of matrices.
pub(crate) const MATRICES: [(usize, usize); 5] =
    [(1, 1), (61, 37), (768, 768), (768, 2304), (50_000, 768)];

/// Query heads, key heads, elements of a head.
pub(crate) const HEADS: [(usize, usize, usize); 7] =
    [(1, 1, 4), (4, 2, 32), (8, 8, 64), (3, 1, 80), (12, 4, 96), (8, 2, 128), (4, 1, 256)];

macro_rules! catalogue {
    ($($family:ident: $($kernel:ident),+;)+) => {
        /// All of them.
        pub fn kernels(caps: &Capabilities) -> Vec<Entry> {
            [$(crate::kernels::$family::cases::examples(caps)),+].into_iter().flatten().collect()
        }
    };
}
families!(catalogue);
