//! Interventions: rows that a call changes on their way through a model.

#[cfg(feature = "testing")]
pub(crate) mod cases;
#[cfg(feature = "testing")]
pub(crate) mod twin;

use super::compose::{Composer, Grid, Kernel, Spec, read, read_write, uniform};
use super::limits::row_workgroup;
use crate::caps::Capabilities;
use crate::error::Result;
use crate::graph::InterventionSite;

/// Most interventions of a call, and most vectors of the residual stream's width that they may have.
pub const MOST_INTERVENTIONS: usize = 1024;

/// What an intervention does to a row, as the kernel has it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u32)]
pub enum InterventionKind {
    Scale,
    Add,
    Project,
    Set,
}

/// An intervention at a site: 8 words of the kernel's operand.
#[repr(C)]
#[derive(Clone, Copy, Debug, PartialEq, bytemuck::Pod, bytemuck::Zeroable)]
pub struct InterventionEntry {
    /// An [`InterventionKind`].
    pub kind: u32,
    pub first_position: u32,
    pub positions: u32,
    /// The word at which its vector begins.
    pub vector: u32,
    pub first_column: u32,
    pub columns: u32,
    pub factor: f32,
    pub reserved: u32,
}

/// Where the operand of [`InterveneForward`] has its parts, in words.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct InterventionLayout {
    /// The first entry. Before it each site has two words: its first entry, and how many it has.
    pub entries: usize,
    /// The first vector.
    pub vectors: usize,
    pub words: usize,
}

impl InterventionLayout {
    /// The layout for a model of `layers` layers with rows of `hidden` elements.
    pub fn new(layers: usize, hidden: usize) -> Self {
        let entries = (2 * InterventionSite::count(layers)).next_multiple_of(64);
        let vectors = entries + MOST_INTERVENTIONS * size_of::<InterventionEntry>() / 4;
        Self { entries, vectors, words: vectors + MOST_INTERVENTIONS * hidden }
    }
}

/// Changes rows of `columns` elements by what a call asks for at the range's site, in place; with `residual` adds other rows
/// and leaves the sum apart. Grid: one workgroup per row.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct InterveneForward {
    pub columns: usize,
    pub residual: bool,
    pub layout: InterventionLayout,
}

impl Spec for InterveneForward {
    fn name(&self) -> &'static str {
        "intervene_forward"
    }

    fn kernel(&self, caps: &Capabilities) -> Result<Kernel> {
        let Self { columns, residual, layout } = *self;
        let size = row_workgroup(caps, columns, self.name())?;
        let composer = Composer::new(*self, size)
            .size("COLUMNS", columns)
            .size("ENTRIES", layout.entries)
            .when("RESIDUAL", residual);
        let mut bindings = vec![
            read_write("x"),
            read("documents"),
            read("interventions"),
            uniform("step"),
            uniform("range"),
        ];
        if residual {
            bindings.extend([read("residual"), read_write("sum")]);
        }
        let grid = Grid::Flat { rows: 1, per_block: 1, per_group: 1 };
        composer.reduced(caps, "00_intervene", &bindings, grid)
    }
}
