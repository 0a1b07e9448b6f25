//! Products in a plan.

use super::{Buffer, Builder, Range, STEP_BYTES, Slice};
use crate::error::Result;
use crate::kernels::{self as k, LinearShape, Output};

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

    /// A `step` of so many rows, whatever the batch: a range, whose first word is where a step has its tokens.
    /// All else in it is 0.
    pub fn fixed_step(&mut self, rows: usize) -> Slice {
        let Slice { offset, .. } = self.range(Range { row0: rows as u32, ..Range::default() });
        Slice::new(Buffer::Ranges, offset, STEP_BYTES)
    }
}
