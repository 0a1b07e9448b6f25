//! Softmax over the last axis of a tensor.

#[cfg(feature = "testing")]
pub(crate) mod cases;
#[cfg(feature = "testing")]
pub(crate) mod twin;

use super::compose::{Composer, Grid, Kernel, Spec, read, read_write, uniform};
use super::limits::{reduction, row_workgroup, variant};
use crate::caps::Capabilities;
use crate::error::Result;
use crate::format::Element;

/// The uniform of `05_softmax_forward.wgsl`, in units of [`softmax_unit`] elements.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, bytemuck::Pod, bytemuck::Zeroable)]
pub struct RowPlace {
    pub rows: u32,
    /// Where the first row begins.
    pub input: u32,
    pub output: u32,
    pub reserved: u32,
}

/// Elements of one unit of storage as `softmax_forward` reads it: rows begin at a whole one.
pub const fn softmax_unit(columns: usize, element: Element) -> usize {
    match element {
        _ if columns.is_multiple_of(4) => 4,
        Element::F32 => 1,
        Element::F16 => 2,
    }
}

/// Rows of `columns` elements. Grid: one workgroup per row, or two rows where these share a word.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Softmax {
    pub columns: usize,
    pub element: Element,
}

impl Spec for Softmax {
    fn name(&self) -> &'static str {
        "softmax_forward"
    }

    fn kernel(&self, caps: &Capabilities) -> Result<Kernel> {
        let Self { columns, element } = *self;
        let (subgroups, why) = reduction(caps);
        let size = row_workgroup(caps, columns, self.name())?;
        let vectors = columns.is_multiple_of(4);
        let rows = if element == Element::F16 && columns % 2 == 1 { 2 } else { 1 };
        let composer = Composer::new(*self, size)
            .when("WORDS", !vectors)
            .when("F16", element == Element::F16)
            .reduction(subgroups);
        let composer = if vectors {
            composer.size("QUADS", columns / 4)
        } else {
            composer.size("COLUMNS", columns).size("ROWS", rows)
        };
        let composer = composer.module("05_softmax_forward");
        let form = if vectors { "vectors" } else { "words" };
        let variant = format!("{} {} of {form}", variant(subgroups), element.name());
        let reason = if vectors {
            format!("{why}; rows are whole vectors")
        } else {
            format!("{why}; rows of {columns} are not whole vectors")
        };
        let grid = Grid::Flat { rows, per_block: 1, per_group: 1 };
        let bindings = [read("input"), read_write("output"), uniform("place")];
        composer.finish(caps, &bindings, grid, variant, reason)
    }
}
