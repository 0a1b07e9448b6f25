//! Every kernel's spec as one type, made from the list of families.
//!
//! A kernel in a plan carries its spec, so that whoever executes a plan (a GPU, or loops on the CPU) knows each dispatch
//! without knowing models.

use super::families::families;

/// Why a kernel has the tile that its spec names.
pub(super) const GIVEN_TILE: &str = "the tile that was asked for";

macro_rules! specs {
    ($($family:ident: $($kernel:ident),+;)+) => {
        /// What a kernel computes: one of all [`Spec`](super::Spec)s.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
        pub enum KernelSpec {
            $($($kernel(super::$family::$kernel),)+)+
        }

        $($(impl From<super::$family::$kernel> for KernelSpec {
            fn from(spec: super::$family::$kernel) -> Self {
                Self::$kernel(spec)
            }
        })+)+
    };
}
families!(specs);
