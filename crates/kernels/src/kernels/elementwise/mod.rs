//! Small helpers in which each output element has one invocation.

#[cfg(feature = "testing")]
pub(crate) mod cases;
#[cfg(feature = "testing")]
pub(crate) mod twin;

use super::compose::{Composer, Kernel, Spec, read, read_write, uniform};
use super::shape::Constant;
use crate::caps::Capabilities;
use crate::error::Result;

/// Clears `count` elements on the first micro-step.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Zero {
    pub count: usize,
}

impl Spec for Zero {
    fn name(&self) -> &'static str {
        "zero_forward"
    }

    fn kernel(&self, caps: &Capabilities) -> Result<Kernel> {
        let bindings = [read_write("data"), uniform("step")];
        Composer::flat(caps, *self)?.fixed(caps, "00_zero", &bindings, self.count)
    }
}

/// The batch's last row of `hidden` elements.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct CopyRow {
    pub hidden: usize,
}

impl Spec for CopyRow {
    fn name(&self) -> &'static str {
        "copy_row_forward"
    }

    fn kernel(&self, caps: &Capabilities) -> Result<Kernel> {
        let bindings = [read("input"), read_write("output"), uniform("step")];
        let composer = Composer::flat(caps, *self)?.size("HIDDEN", self.hidden);
        composer.fixed(caps, "00_copy_row", &bindings, self.hidden)
    }
}

/// Rows of `columns` elements times a factor, in place. Grid: `tokens · columns` invocations.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Scale {
    pub columns: usize,
    pub factor: Constant,
}

impl Spec for Scale {
    fn name(&self) -> &'static str {
        "scale_forward"
    }

    fn kernel(&self, caps: &Capabilities) -> Result<Kernel> {
        Composer::flat(caps, *self)?
            .size("COLUMNS", self.columns)
            .float("FACTOR", self.factor.0 as f32)
            .by_row(caps, "00_scale", &[read_write("rows"), uniform("step")], self.columns)
    }
}

/// Some columns of rows of `stride` elements, times a factor, after those of earlier chunks. Grid: an invocation for
/// each element.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct CaptureForward {
    pub stride: usize,
    pub first: usize,
    pub columns: usize,
    pub factor: Constant,
}

impl Spec for CaptureForward {
    fn name(&self) -> &'static str {
        "capture_forward"
    }

    fn kernel(&self, caps: &Capabilities) -> Result<Kernel> {
        let Self { stride, first, columns, factor } = *self;
        Composer::flat(caps, *self)?
            .size("STRIDE", stride)
            .size("FIRST", first)
            .size("COLUMNS", columns)
            .float("FACTOR", factor.0 as f32)
            .by_row(caps, "00_capture", &[read("x"), read_write("y"), uniform("step")], columns)
    }
}

/// Sums that [`Checksum`] leaves.
pub const CHECKSUM_LANES: usize = 4096;

/// The checksum of `count` words.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Checksum {
    pub count: usize,
}

impl Spec for Checksum {
    fn name(&self) -> &'static str {
        "checksum_forward"
    }

    fn kernel(&self, caps: &Capabilities) -> Result<Kernel> {
        Composer::flat(caps, *self)?.size("COUNT", self.count).size("LANES", CHECKSUM_LANES).fixed(
            caps,
            "00_checksum",
            &[read("words"), read_write("sums")],
            CHECKSUM_LANES,
        )
    }
}

/// `count` initial weights.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct InitializeForward {
    pub count: usize,
}

impl Spec for InitializeForward {
    fn name(&self) -> &'static str {
        "initialize_forward"
    }

    fn kernel(&self, caps: &Capabilities) -> Result<Kernel> {
        let bindings = [read_write("weights"), uniform("options"), uniform("elements")];
        Composer::flat(caps, *self)?.fixed(caps, "00_initialize", &bindings, self.count)
    }
}
