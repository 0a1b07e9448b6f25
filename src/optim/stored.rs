//! State as `optimizer.safetensors` has it: names, shapes, and where the bytes lie.

use crate::kernels::CODED_BLOCK;
use crate::params::Params;
use crate::plan::{Buffer, Slice};
use std::ops::Range;

/// What a set of state holds of a parameter.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Content {
    /// An f32 per element.
    Numbers,
    /// A code of 8 bits per element.
    Codes,
    /// The scales of both moments of each block of elements.
    Scales,
}

/// A set of state: the suffix of its tensors' names, where it lives, and what it holds.
#[derive(Clone, Copy, Debug)]
pub struct StateSet {
    pub suffix: &'static str,
    pub buffer: fn(usize) -> Buffer,
    pub content: Content,
}

impl StateSet {
    /// A set in f32.
    pub const fn numbers(suffix: &'static str, buffer: fn(usize) -> Buffer) -> Self {
        Self { suffix, buffer, content: Content::Numbers }
    }

    /// The shape of a tensor, that of its parameter given.
    pub fn shape(&self, of: &[usize]) -> Vec<usize> {
        match self.content {
            Content::Scales => vec![of.iter().product::<usize>() / CODED_BLOCK, 2],
            _ => of.to_vec(),
        }
    }
}

/// A tensor of a file, and where its bytes lie, in order.
#[derive(Clone, Debug)]
pub struct Stored {
    pub name: String,
    pub shape: Vec<usize>,
    pub content: Content,
    pub slices: Vec<Slice>,
}

impl Stored {
    pub fn bytes(&self) -> u64 {
        self.slices.iter().map(|slice| slice.bytes).sum()
    }

    /// Where a range of its bytes lies, stretch by stretch.
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

/// Tensors of sets that lie as the layout says, set by set; an empty suffix leaves the names.
pub fn stored_sets(layout: &Params, sets: &[StateSet]) -> Vec<Stored> {
    let of = |set: &StateSet| {
        let (set, dot) = (*set, if set.suffix.is_empty() { "" } else { "." });
        layout.tensors.iter().map(move |tensor| Stored {
            name: format!("{}{dot}{}", tensor.name, set.suffix),
            shape: tensor.shape.clone(),
            content: set.content,
            slices: layout.runs(tensor).into_iter().map(|run| super::of(set.buffer, run)).collect(),
        })
    };
    sets.iter().flat_map(of).collect()
}
