//! Embeddings of tokens and of positions.

#[cfg(feature = "testing")]
pub(crate) mod cases;
#[cfg(feature = "testing")]
pub(crate) mod twin;

use super::compose::{Binding, Composer, Kernel, Spec, read, read_write, uniform};
use super::modules::{UNIT, packed_matrix};
use crate::caps::Capabilities;
use crate::error::Result;
use crate::format::WeightFormat;

/// The rows of those tokens that are within the range's columns; the first range clears the others. Of a decoded row
/// also the `rotated` numbers that a table turns by at its position, if these are not 0. Grid: `tokens · hidden`
/// invocations.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct EmbeddingForward {
    pub hidden: usize,
    pub rotated: usize,
}

impl Spec for EmbeddingForward {
    fn name(&self) -> &'static str {
        "embedding_forward"
    }

    fn kernel(&self, caps: &Capabilities) -> Result<Kernel> {
        let Self { hidden, rotated } = *self;
        let composer = Composer::flat(caps, *self)?.size("HIDDEN", hidden);
        let composer = gathers(composer, rotated, hidden);
        composer.by_row(caps, "01_embedding_forward", &gathered("weight", rotated), hidden)
    }
}

/// The same from a packed part of `rows` rows. Grid: an invocation for each unit of a packed row.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct EmbeddingPacked {
    pub hidden: usize,
    pub rows: usize,
    pub format: WeightFormat,
    pub rotated: usize,
}

impl Spec for EmbeddingPacked {
    fn name(&self) -> &'static str {
        "embedding_packed_forward"
    }

    fn kernel(&self, caps: &Capabilities) -> Result<Kernel> {
        let Self { hidden, rows, format, rotated } = *self;
        let units = hidden / UNIT;
        let composer = Composer::flat(caps, *self)?.size("UNITS", units);
        let composer = gathers(composer, rotated, units);
        let composer = packed_matrix(composer, format, rows * hidden);
        composer.by_row(caps, "01_embedding_packed", &gathered("packed", rotated), units)
    }
}

fn gathered(table: &'static str, rotated: usize) -> Vec<Binding> {
    let gathered =
        [read("tokens"), read(table), read_write("output"), uniform("step"), uniform("range")];
    let angles = [read_write("angles"), read("table")];
    [&gathered, &angles[..if rotated > 0 { 2 } else { 0 }]].concat()
}

/// The constants of what an embedding leaves beside its rows, where so many invocations have one.
fn gathers(composer: Composer, rotated: usize, invocations: usize) -> Composer {
    composer.when("ANGLES", rotated > 0).size("INVOCATIONS", invocations).size("ROTATED", rotated)
}

/// Leaves out the rows of `padding`. Grid: `tokens · hidden` invocations.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct EmbeddingBackward {
    pub hidden: usize,
    pub padding: Option<usize>,
}

impl Spec for EmbeddingBackward {
    fn name(&self) -> &'static str {
        "embedding_backward"
    }

    fn kernel(&self, caps: &Capabilities) -> Result<Kernel> {
        let bindings = [
            read("order"),
            read("tokens"),
            read("d_output"),
            read_write("d_weight"),
            uniform("step"),
            uniform("range"),
        ];
        let composer = Composer::flat(caps, *self)?.size("HIDDEN", self.hidden);
        let composer = match self.padding {
            Some(padding) => composer.when("PADDED", true).size("PADDING", padding),
            None => composer.when("PADDED", false),
        };
        composer.by_row(caps, "01_embedding_backward", &bindings, self.hidden)
    }
}

/// Adds the rows of those positions that are within the range's columns, in place. Grid: `tokens · hidden` invocations.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct PositionForward {
    pub hidden: usize,
}

impl Spec for PositionForward {
    fn name(&self) -> &'static str {
        "position_forward"
    }

    fn kernel(&self, caps: &Capabilities) -> Result<Kernel> {
        let bindings =
            [read_write("x"), read("weight"), read("documents"), uniform("step"), uniform("range")];
        let composer = Composer::flat(caps, *self)?.size("HIDDEN", self.hidden);
        composer.by_row(caps, "01_position_forward", &bindings, self.hidden)
    }
}

/// Document ends lie `ends` elements behind the starts. Grid: `tokens · hidden` invocations.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct PositionBackward {
    pub hidden: usize,
    pub ends: usize,
}

impl Spec for PositionBackward {
    fn name(&self) -> &'static str {
        "position_backward"
    }

    fn kernel(&self, caps: &Capabilities) -> Result<Kernel> {
        let bindings = [
            read("documents"),
            read("d_output"),
            read_write("d_weight"),
            uniform("step"),
            uniform("range"),
        ];
        let composer = Composer::flat(caps, *self)?.size("ENDS", self.ends);
        let composer = composer.size("HIDDEN", self.hidden);
        composer.by_row(caps, "01_position_backward", &bindings, self.hidden)
    }
}
