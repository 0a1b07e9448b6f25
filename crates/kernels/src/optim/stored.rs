//! State as `optimizer.safetensors` has it: names, shapes, and where the bytes are.

use crate::arch::{Stored as Order, Swap};
use crate::params::{Params, Tensor};
use crate::plan::{Buffer, Slice};
use std::ops::Range;

/// Elements whose codes share a scale for each moment.
pub(super) const CODED_BLOCK: usize = 256;

/// What a set of state holds of a parameter.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Content {
    /// An f32 per element, whatever it is.
    Numbers,
    /// A mean of gradients per element, f32.
    Means,
    /// A mean of squares per element, f32.
    Squares,
    /// A code of 8 bits per element.
    Codes,
    /// The scales of both moments of each block of elements.
    Scales,
    /// A mean of squares per row, or per column.
    RowSquares,
    ColumnSquares,
}

impl Content {
    /// Why no run leaves this value in such a set, if none does. Gradients in the middle of an
    /// accumulation may well not be finite: the update is then left out.
    pub fn refusal(self, value: f32) -> Option<&'static str> {
        let (allowed, why) = match self {
            Self::Means => (value.is_finite(), "a mean of gradients is finite"),
            Self::Squares | Self::RowSquares | Self::ColumnSquares => {
                (value.is_finite() && value >= 0.0, "a mean of squares is finite and not negative")
            }
            Self::Scales => {
                (value.is_finite() && value >= 0.0, "a scale is finite and not negative")
            }
            Self::Numbers | Self::Codes => return None,
        };
        (!allowed).then_some(why)
    }

    /// Whether a file has an f32 per element, in the checkpoint's order.
    fn per_element(self) -> bool {
        matches!(self, Self::Numbers | Self::Means | Self::Squares)
    }

    /// Words for a run of `len` elements in rows of `columns`; `first`: it is the parameter's first.
    pub(super) fn words(self, len: usize, columns: usize, first: bool) -> usize {
        match self {
            Self::Numbers | Self::Means | Self::Squares => len,
            Self::Codes => len / 4,
            Self::Scales => 2 * (len / CODED_BLOCK),
            Self::RowSquares => len / columns,
            Self::ColumnSquares => {
                if first {
                    columns
                } else {
                    0
                }
            }
        }
    }
}

/// A set of state: the suffix of its tensors' names, where it lives, and what it holds.
#[derive(Clone, Copy, Debug)]
pub struct StateSet {
    pub suffix: &'static str,
    pub buffer: fn(usize) -> Buffer,
    pub content: Content,
}

impl StateSet {
    pub const fn new(suffix: &'static str, buffer: fn(usize) -> Buffer, content: Content) -> Self {
        Self { suffix, buffer, content }
    }

    /// The shape of a tensor in a file, that of its parameter given. What is not per element is in the file as it is
    /// here: rows are those that kernels see.
    pub fn shape(&self, of: &[usize], order: Order) -> Vec<usize> {
        match self.content {
            Content::Codes => lying(of, order),
            Content::Scales => vec![of.iter().product::<usize>() / CODED_BLOCK, 2],
            Content::RowSquares => vec![lying(of, order)[0]],
            Content::ColumnSquares => vec![lying(of, order)[1]],
            _ => of.to_vec(),
        }
    }

    /// The tensor of a parameter whose state is in these slices.
    pub(super) fn stored(&self, tensor: &Tensor, slices: Vec<Slice>) -> Stored {
        let dot = if self.suffix.is_empty() { "" } else { "." };
        let Tensor { name, shape, stored: order, .. } = tensor;
        Stored {
            name: format!("{name}{dot}{}", self.suffix),
            shape: self.shape(shape, *order),
            content: self.content,
            slices,
            swap: tensor.swap().filter(|_| self.content.per_element()),
        }
    }
}

/// The shape of a parameter as kernels see it.
fn lying(shape: &[usize], order: Order) -> Vec<usize> {
    let mut shape = shape.to_vec();
    if order == Order::Columns {
        shape.reverse();
    }
    shape
}

/// What an optimizer knows of a parameter.
#[derive(Clone, Debug)]
pub struct Trained {
    /// As kernels see it.
    pub shape: Vec<usize>,
    /// A matrix that a layer multiplies by, or an adapter's.
    pub of_layer: bool,
}

impl Trained {
    /// A parameter of this shape in a checkpoint.
    pub fn new(shape: &[usize], order: Order, of_layer: bool) -> Self {
        Self { shape: lying(shape, order), of_layer }
    }

    pub(super) fn of(layout: &Params, tensor: &Tensor) -> Self {
        let of_layer = layout.architecture.is_of_layer(tensor.matrix);
        Self::new(&tensor.shape, tensor.stored, of_layer)
    }
}

/// A tensor of a file, and where its bytes are, in order.
#[derive(Clone, Debug)]
pub struct Stored {
    pub name: String,
    pub shape: Vec<usize>,
    pub content: Content,
    pub slices: Vec<Slice>,
    /// From the order that it has here to the file's, if that is another one.
    pub swap: Option<Swap>,
}

impl Stored {
    pub fn bytes(&self) -> u64 {
        self.slices.iter().map(|slice| slice.bytes).sum()
    }

    /// Where a range of its bytes is, stretch by stretch.
    pub fn cut(&self, bytes: &Range<u64>) -> Vec<Slice> {
        let mut at = 0;
        let mut found = vec![];
        for slice in &self.slices {
            let (first, last) = (at.max(bytes.start), (at + slice.bytes).min(bytes.end));
            if first < last {
                found.push(Slice::new(slice.buffer, slice.offset + first - at, last - first));
            }
            at += slice.bytes;
        }
        found
    }
}

/// Tensors of sets with this layout, set by set. An empty suffix leaves the names.
pub fn stored_sets(layout: &Params, sets: &[StateSet]) -> Vec<Stored> {
    let of = |set: &StateSet| {
        let set = *set;
        layout.tensors.iter().map(move |tensor| {
            let runs = layout.runs(tensor).into_iter();
            set.stored(tensor, runs.map(|run| super::of(set.buffer, run)).collect())
        })
    };
    sets.iter().flat_map(of).collect()
}
