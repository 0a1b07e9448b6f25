//! Operations on users' own tensors: calls checked and compiled into plans.

mod attention;
mod mask;
mod softmax;

pub use attention::{AttentionCall, AttentionPlan, BufferBytes, GradientViews, View};
pub use mask::{AttentionMask, DensePart, MaskShape, PerItem};
pub use softmax::{RowsAt, SoftmaxCall, SoftmaxPlan};
