//! Operations on users' own tensors: calls judged here, with the words that their users read, and
//! compiled into plans. A plan binds roles, so that calls with equal keys share one.

mod attention;
mod attention_plan;
mod fields;
mod mask;
mod mask_options;
mod refuse;
mod softmax;
mod tensor;

pub use attention::{AttentionCall, AttentionOperation};
pub use attention_plan::AttentionKey;
pub use attention_plan::View;
pub use mask::PerItem;
pub use mask::{AttentionMask, DensePart, MaskShape};
pub use mask_options::{DenseData, DenseKind, DenseOption, MaskOptions};
pub use softmax::{SoftmaxCall, SoftmaxKey};
pub use tensor::TensorView;

use crate::caps::Capabilities;
use crate::error::Result;
use crate::kernels::{Geometry, RowPlace};
use crate::plan::{Buffer, Plan};

/// What a buffer is to an operation; plans name it [`Buffer::Given`] of the role's number.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[repr(u32)]
pub enum Role {
    /// The query, or the only input.
    Query,
    Key,
    Value,
    Output,
    Logsumexp,
    DOutput,
    DQuery,
    DKey,
    DValue,
    Mask,
    /// The uniform.
    Geometry,
}

/// Roles that tensors have: all before [`Role::Mask`].
pub const TENSORS: usize = Role::Mask as usize;

impl Role {
    /// The buffer as plans name it.
    pub const fn buffer(self) -> Buffer {
        Buffer::Given(self as u32)
    }

    const fn name(self) -> &'static str {
        self.names()[0]
    }

    /// What users call it, and what kernels do.
    const fn names(self) -> [&'static str; 2] {
        match self {
            Self::Query => ["query"; 2],
            Self::Key => ["key", "keys"],
            Self::Value => ["value", "values"],
            Self::Output => ["output"; 2],
            Self::Logsumexp => ["logsumexp", "lse"],
            Self::DOutput => ["dOutput", "d_output"],
            Self::DQuery => ["dQuery", "d_query"],
            Self::DKey => ["dKey", "d_key"],
            Self::DValue => ["dValue", "d_value"],
            Self::Mask => ["mask"; 2],
            Self::Geometry => ["geometry"; 2],
        }
    }
}

/// All that a plan depends on besides the device: calls with equal keys replay the same plan.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum OperationKey {
    Attention(AttentionKey),
    Softmax(SoftmaxKey),
}

impl OperationKey {
    /// The plan, over buffers named by their roles.
    ///
    /// # Errors
    /// `limit-exceeded`.
    pub fn plan(&self, caps: &Capabilities) -> Result<Plan> {
        match self {
            Self::Attention(key) => key.plan(caps),
            Self::Softmax(key) => key.plan(caps),
        }
    }

    /// Rows to replay the plan for.
    pub fn rows(&self) -> usize {
        match self {
            Self::Attention(key) => key.rows(),
            Self::Softmax(key) => key.rows,
        }
    }
}

/// Where an operation's tensors are in their buffers: the contents of [`Role::Geometry`].
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Places {
    Attention(Geometry),
    Softmax(RowPlace),
}

impl Places {
    pub fn bytes(&self) -> &[u8] {
        match self {
            Self::Attention(geometry) => bytemuck::bytes_of(geometry),
            Self::Softmax(place) => bytemuck::bytes_of(place),
        }
    }
}

/// A call that has been judged: it may run as soon as the tensors exist that it makes.
#[derive(Clone, Debug)]
pub struct Operation {
    pub key: OperationKey,
    pub places: Places,
    /// Contents of [`Role::Mask`]; none without one.
    pub mask: Vec<u32>,
    /// The buffers of the tensors that were given, by role.
    pub buffers: [Option<u32>; TENSORS],
    /// Tensors that are to be made for it, whole and in order.
    pub made: Vec<Role>,
}
