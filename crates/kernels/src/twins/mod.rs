//! CPU twins of the kernels, under the kernels' names: plain loops in f32 or f64 that serve as the
//! oracle of every kernel test, and [`model`], the whole network built from them.
//!
//! Twins return what a kernel overwrites; where a kernel accumulates, the caller adds.

pub mod check;
pub mod model;
pub mod normal;
mod operands;

pub use operands::Operands;

// What tests of sessions compare with.
pub use crate::kernels::attention::twin::gradient_rows::ForwardResults;
pub use crate::kernels::attention::twin::twin as causal_attention;
pub use crate::kernels::dropout::twin::Masks;
pub use crate::kernels::loss::twin::{
    Softened, Steered, cross_entropy_backward, log_sum_exp, smoothed_cross_entropy_backward,
    steered_cross_entropy_backward,
};
pub use crate::kernels::optimizer::twin::{Decision, StepOptions, average_forward};
pub use crate::kernels::sample::twin::top_logits_forward;
pub use crate::kernels::weights::twin::{pack_weights_forward, unpack_weights_forward};
pub use crate::optim::adamw::twin::adamw_forward;
pub use crate::optim::adamw8bit::twin::adamw8bit_forward;
pub use crate::optim::lion::twin::lion_forward;
pub use crate::optim::muon::twin::{muon_forward, muon_orthogonal, muon_update_forward};
pub use crate::optim::sgd::twin::sgd_forward;

use crate::error::{Error, Result};
use crate::kernels::KernelSpec;
use crate::kernels::families;
use std::fmt::Debug;
use std::iter::Sum;
use std::ops::{Add, AddAssign, Div, Mul, MulAssign, Neg, Sub};

/// What a kernel does, on the CPU.
pub trait Twin: Debug {
    /// Does it over the operands of one dispatch.
    ///
    /// # Errors
    /// `internal` where there is no twin, and where what is bound is not what the kernel binds.
    fn run(&self, _on: &mut Operands<'_>) -> Result<()> {
        Err(Error::internal(format!("the CPU double has no twin of {self:?}")))
    }
}

macro_rules! twins {
    ($($family:ident: $($kernel:ident),+;)+) => {
        impl Twin for KernelSpec {
            fn run(&self, on: &mut Operands<'_>) -> Result<()> {
                match self { $($(Self::$kernel(spec) => spec.run(on),)+)+ }
            }
        }
    };
}
families!(twins);

/// The floating-point types that twins compute in.
pub trait Real:
    Copy
    + Debug
    + PartialOrd
    + Add<Output = Self>
    + Sub<Output = Self>
    + Mul<Output = Self>
    + Div<Output = Self>
    + Neg<Output = Self>
    + AddAssign
    + MulAssign
    + Sum
    + 'static
{
    const ZERO: Self;
    const ONE: Self;
    fn from_f64(x: f64) -> Self;
    fn to_f64(self) -> f64;
    fn exp(self) -> Self;
    fn ln(self) -> Self;
    fn sqrt(self) -> Self;
    fn tanh(self) -> Self;
    fn erf(self) -> Self;
    fn max(self, other: Self) -> Self;
    fn min(self, other: Self) -> Self;
    fn is_finite(self) -> bool;

    fn from_usize(n: usize) -> Self {
        Self::from_f64(n as f64)
    }
}

macro_rules! real {
    ($type:ty, $exp:path, $ln:path, $sqrt:path, $tanh:path, $erf:path) => {
        impl Real for $type {
            const ZERO: Self = 0.0;
            const ONE: Self = 1.0;
            fn from_f64(x: f64) -> Self {
                x as Self
            }
            fn to_f64(self) -> f64 {
                f64::from(self)
            }
            fn exp(self) -> Self {
                $exp(self)
            }
            fn ln(self) -> Self {
                $ln(self)
            }
            fn sqrt(self) -> Self {
                $sqrt(self)
            }
            fn tanh(self) -> Self {
                $tanh(self)
            }
            fn erf(self) -> Self {
                $erf(self)
            }
            fn max(self, other: Self) -> Self {
                <$type>::max(self, other)
            }
            fn min(self, other: Self) -> Self {
                <$type>::min(self, other)
            }
            fn is_finite(self) -> bool {
                <$type>::is_finite(self)
            }
        }
    };
}

real!(f32, libm::expf, libm::logf, libm::sqrtf, libm::tanhf, libm::erff);
real!(f64, libm::exp, libm::log, libm::sqrt, libm::tanh, libm::erf);

/// Stands for −∞ in the kernels: some compilers refuse the literal infinity.
pub const NEGATIVE_HUGE: f64 = -1e30;

pub fn dot<R: Real>(a: &[R], b: &[R]) -> R {
    a.iter().zip(b).map(|(&x, &y)| x * y).sum()
}

/// total += x, element by element.
pub fn add_assign<R: Real>(total: &mut [R], x: &[R]) {
    assert_eq!(total.len(), x.len());
    total.iter_mut().zip(x).for_each(|(t, &x)| *t += x);
}

/// Converts between the precisions of twins and kernels.
pub fn cast<A: Real, B: Real>(x: &[A]) -> Vec<B> {
    x.iter().map(|&x| B::from_f64(x.to_f64())).collect()
}
