//! Embeddings of tokens and of positions.

#[cfg(feature = "testing")]
pub(crate) mod cases;
#[cfg(feature = "testing")]
pub(crate) mod twin;

use super::compose::{Composer, Kernel, Spec, read, read_write, uniform};
use super::modules::{UNIT, packed_matrix};
use crate::caps::Capabilities;
use crate::error::Result;
use crate::format::WeightFormat;

/// The embedding rows of the tokens in the range's columns, from a part of `rows` rows. The first range clears the rows
/// of other tokens. For a decoded row also copies `rotated` numbers of its position from a table of rotary angles, if
/// not 0. Grid: an invocation for each element, or each unit of a packed row.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct EmbeddingForward {
    pub hidden: usize,
    pub rows: usize,
    pub format: WeightFormat,
    pub rotated: usize,
}

impl Spec for EmbeddingForward {
    fn name(&self) -> &'static str {
        "embedding_forward"
    }

    fn kernel(&self, caps: &Capabilities) -> Result<Kernel> {
        let Self { hidden, rows, format, rotated } = *self;
        let packed = format != WeightFormat::F32;
        let (invocations, table) =
            if packed { (hidden / UNIT, "packed") } else { (hidden, "weight") };
        let composer = Composer::flat(caps, *self)?
            .size("INVOCATIONS", invocations)
            .size("ROTATED", rotated)
            .when("ANGLES", rotated > 0)
            .when("PACKED", packed);
        let mut bindings = vec![
            read("tokens"),
            read(table),
            read_write("output"),
            uniform("step"),
            uniform("range"),
        ];
        if rotated > 0 {
            bindings.extend([read_write("angles"), read("table")]);
        }
        let composer = packed_matrix(composer, format, rows * hidden);
        composer.by_row(caps, "01_embedding_forward", &bindings, invocations)
    }
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

/// Document ends follow `ends` elements after the starts. Grid: `tokens · hidden` invocations.
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
