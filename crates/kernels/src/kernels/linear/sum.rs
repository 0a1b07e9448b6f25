//! The second stage of a product that is split along K.

use crate::caps::Capabilities;
use crate::error::Result;
use crate::format::Element;
use crate::kernels::compose::{Composer, Grid, Kernel, Spec, read, read_write, uniform};
use crate::kernels::shape::Output;
use crate::products::{Form, LinearShape};

/// Adds up what [`LinearProduct`](super::LinearProduct) has left in parts.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct LinearSum {
    pub shape: LinearShape,
    pub output: Output,
    pub splits: usize,
}

impl LinearSum {
    /// Elements of all parts, which the product writes instead of its result.
    pub fn elements(&self) -> u64 {
        self.splits as u64 * self.shape.part_elements()
    }
}

impl Spec for LinearSum {
    fn name(&self) -> &'static str {
        "linear_sum"
    }

    fn kernel(&self, caps: &Capabilities) -> Result<Kernel> {
        let Self { shape, output, splits } = *self;
        let fixed_rows = shape.form == Form::MatmulAt;
        let mut bindings = vec![read("parts"), read_write("c"), uniform("step"), uniform("range")];
        bindings.extend(output.added());
        let composer = Composer::flat(caps, *self)?;
        let per_group = composer.workgroup_size();
        let flat = Grid::Flat { rows: 1, per_block: shape.part_stride() / 4, per_group };
        let composer = composer
            .size("N", shape.part_stride())
            .size("SPLITS", splits)
            .size("PART_ROWS", shape.m())
            .size("FIXED_ROWS", if fixed_rows { shape.k } else { 0 })
            .size("C_STRIDE", shape.c_stride)
            .size("C_COLUMNS", usize::from(shape.form == Form::MatmulT))
            .size("WRITE_MODE", output.write_mode())
            .vectors(4)
            .when("F16", shape.c == Element::F16);
        output.flags(composer).module("03_linear_sum").finish(
            caps,
            &bindings,
            if fixed_rows { flat.fixed(caps, shape.k)? } else { flat },
            format!("{splits} parts, vec4"),
            "the product before it was split along K",
        )
    }
}
