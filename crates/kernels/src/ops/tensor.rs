//! Tensors as calls name them, and what they must be.

use super::Role;
use super::attention_plan::View;
use super::refuse::Sizes;
use crate::error::{Error, Result};
use crate::kernels::Element;

/// A view of a buffer, in elements. It is inside its buffer, and no two of its indices share an element.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TensorView {
    /// The buffer's number.
    pub id: u32,
    pub element: Element,
    pub offset: usize,
    pub shape: Vec<usize>,
    pub strides: Vec<usize>,
}

impl TensorView {
    /// Holds the tensor to a shape and an element.
    pub(super) fn expect(&self, what: &str, shape: &[usize], element: Element) -> Result<()> {
        if self.shape == shape && self.element == element {
            return Ok(());
        }
        Err(Error::options(format!(
            "{what} has the shape {} in {}; give {} in {}",
            Sizes(&self.shape),
            self.element.name(),
            Sizes(shape),
            element.name()
        )))
    }

    /// `[batch, heads, tokens, head_dim]`.
    pub(super) fn four_axes(&self, what: &str) -> Result<[usize; 4]> {
        <[usize; 4]>::try_from(self.shape.as_slice()).map_err(|_| {
            let shape = Sizes(&self.shape);
            Error::options(format!(
                "{what} has the shape {shape}; give [batch, heads, tokens, head_dim]"
            ))
        })
    }

    /// The kernels read vectors of four elements.
    pub(super) fn vectors(&self, what: &str) -> Result<View> {
        // The stride of an axis of one element is never used.
        let used = |axis: usize| if self.shape[axis] == 1 { 0 } else { self.strides[axis] };
        let view = View { offset: self.offset, strides: [used(0), used(1), used(2)] };
        let aligned = view.strides.iter().chain([&view.offset]).all(|x| x.is_multiple_of(4));
        if used(3) == 1 && aligned {
            return Ok(view);
        }
        Err(Error::options(format!(
            "{what} has offset {} and strides {}; the last axis must be without gaps, and the \
             offset and the other strides multiples of 4",
            self.offset,
            Sizes(&self.strides)
        )))
    }

    /// Whether the elements follow one another in row-major order.
    pub(super) fn contiguous(&self) -> bool {
        let mut length = 1;
        self.shape.iter().zip(&self.strides).rev().all(|(&size, &stride)| {
            let follows = size == 1 || stride == length;
            length *= size;
            follows
        })
    }

    /// Refuses a part of a buffer where the kernels read all of it.
    pub(super) fn whole(&self, what: &str) -> Result<()> {
        if self.offset == 0 && self.contiguous() {
            return Ok(());
        }
        Err(Error::options(format!(
            "{what} is a part of its buffer (offset {}, strides {}); give a contiguous \
             tensor that begins where its buffer does",
            self.offset,
            Sizes(&self.strides)
        )))
    }
}

/// WebGPU lets no dispatch write to a buffer that it also reads: a written tensor has a buffer to itself.
pub(super) fn expect_own_buffer(
    place: &str,
    (role, written): (Role, &TensorView),
    others: &[(Role, u32)],
) -> Result<()> {
    let Some((other, _)) = others.iter().find(|(_, id)| *id == written.id) else { return Ok(()) };
    Err(Error::options(format!(
        "{place}: {} shares its buffer with {}; give one with a buffer of its own",
        role.name(),
        other.name()
    )))
}
