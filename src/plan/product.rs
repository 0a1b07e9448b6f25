//! Products in a plan.

use super::{Buffer, Builder, Range, STEP_BYTES, Slice};
use crate::error::Result;
use crate::kernels::{self as k, Kernel, LinearShape, LinearSum, Output, Parts, WriteMode};

impl Builder<'_> {
    /// One product of `operands` a and b into c, in two dispatches if K is split. The rows are those of `range`,
    /// up to the tokens of `step`.
    ///
    /// # Errors
    /// `limit-exceeded` when an operand or the kernel does not fit the device.
    pub fn product(
        &mut self,
        label: &str,
        shape: &LinearShape,
        output: Output,
        [a, b, c]: [Slice; 3],
        added: &[Slice],
        (step, range): (Slice, Range),
    ) -> Result<()> {
        self.note_product(*shape);
        let linear = k::linear(self.caps, shape, output)?;
        let columns = self.range(range);
        let flops = 2.0 * shape.n as f64 * shape.k as f64 * shape.tokens as f64;
        let Some(sum) = linear.sum else {
            let mut slices = vec![a, b, c, step, columns];
            slices.extend_from_slice(added);
            return self.dispatch_rows(label, linear.product, slices, range, flops);
        };
        let parts = self.tensor("parts of a product", sum.elements)?;
        let slices = vec![a, b, parts, step, columns];
        self.dispatch_rows(label, linear.product, slices, range, flops)?;
        let mut slices = vec![parts, c, step, columns];
        slices.extend_from_slice(added);
        let label = format!("{label} sum");
        self.dispatch_rows(label, sum.kernel, slices, range, sum.elements as f64)
    }

    /// The first stage of a product whose K is split, and how its parts lie; None where K is whole. `mode` is that of
    /// their sum.
    ///
    /// # Errors
    /// As [`Builder::product`].
    pub fn split(&self, shape: &LinearShape, mode: WriteMode) -> Result<Option<(Kernel, Parts)>> {
        let linear = k::linear(self.caps, shape, Output::Mode(mode))?;
        let apart = shape.part_elements();
        let parts = |sum: &LinearSum| Parts {
            count: (sum.elements / apart) as usize,
            apart: apart as usize,
        };
        Ok(linear.sum.map(|sum| (linear.product, parts(&sum))))
    }

    /// The parts of a product, by what [`Builder::split`] gave: who reads them adds them up.
    ///
    /// # Errors
    /// `limit-exceeded` when an operand does not fit the device.
    pub fn product_in_parts(
        &mut self,
        label: &str,
        (shape, kernel): (&LinearShape, Kernel),
        [a, b, parts]: [Slice; 3],
        (step, range): (Slice, Range),
    ) -> Result<()> {
        self.note_product(*shape);
        let slices = vec![a, b, parts, step, self.range(range)];
        let flops = 2.0 * shape.n as f64 * shape.k as f64 * shape.tokens as f64;
        self.dispatch_rows(label, kernel, slices, range, flops)
    }

    /// A `step` of so many rows, whatever the batch: a range, whose first word is where a step has its tokens.
    /// All else in it is 0.
    pub fn fixed_step(&mut self, rows: usize) -> Slice {
        let Slice { offset, .. } = self.range(Range { row0: rows as u32, ..Range::default() });
        Slice::new(Buffer::Ranges, offset, STEP_BYTES)
    }
}
