//! From any spec to its kernel.

use super::compose::{Kernel, Spec};
use super::families::families;
use super::spec::KernelSpec;
use crate::caps::Capabilities;
use crate::error::Result;

macro_rules! select {
    ($($family:ident: $($kernel:ident),+;)+) => {
        impl Spec for KernelSpec {
            fn name(&self) -> &'static str {
                match self { $($(Self::$kernel(spec) => spec.name(),)+)+ }
            }

            fn kernel(&self, caps: &Capabilities) -> Result<Kernel> {
                match self { $($(Self::$kernel(spec) => spec.kernel(caps),)+)+ }
            }

            fn flops_per_cached_key(&self) -> f64 {
                match self { $($(Self::$kernel(spec) => spec.flops_per_cached_key(),)+)+ }
            }
        }
    };
}
families!(select);
