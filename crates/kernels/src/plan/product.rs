//! Products in a plan.

use super::{Buffer, Builder, Launch, Operand, Range, STEP_BYTES, Slice};
use crate::error::Result;
use crate::kernels::{self as k, LinearKernels, LinearShape, Output};

impl Builder<'_> {
    /// One product of `operands` a and b into c, in two dispatches if K is split. The rows are those of `range`, up to
    /// the tokens of `step`, or of the plan's.
    ///
    /// # Errors
    /// `limit-exceeded` when an operand or the kernel does not fit the device.
    pub fn product(
        &mut self,
        label: &str,
        shape: &LinearShape,
        output: Output,
        operands: [Slice; 3],
        added: &[Operand],
        at: (Option<Slice>, Range),
    ) -> Result<()> {
        let kernels = k::linear(self.caps, shape, output)?;
        self.product_by(label, (shape, kernels), operands, added, at)
    }

    /// The same by these kernels.
    ///
    /// # Errors
    /// As [`Builder::product`].
    pub fn product_by(
        &mut self,
        label: &str,
        (shape, kernels): (&LinearShape, LinearKernels),
        [a, b, c]: [Slice; 3],
        added: &[Operand],
        (step, range): (Option<Slice>, Range),
    ) -> Result<()> {
        self.products.push(*shape);
        let launch =
            |label: &str, kernel| Launch::new(label, kernel).rows(range).bind_some("step", step);
        let flops = 2.0 * shape.n as f64 * shape.k as f64 * shape.tokens as f64;
        let product = launch(label, kernels.product).flops(flops).bind("a", a).bind("b", b);
        let Some(sum) = kernels.sum else {
            return self.dispatch(product.bind("c", c).bind_all(added.iter().copied()));
        };
        let parts = self.tensor("parts of a product", sum.elements)?;
        self.dispatch(product.bind("c", parts))?;
        let sum_of = launch(&format!("{label} sum"), sum.kernel).bind("parts", parts).bind("c", c);
        self.dispatch(sum_of.bind_all(added.iter().copied()).flops(sum.elements as f64))
    }

    /// The first stage of a product whose K is split, into parts: what reads them adds them up.
    ///
    /// # Errors
    /// As [`Builder::product`].
    pub fn product_in_parts(
        &mut self,
        label: &str,
        shape: &LinearShape,
        output: Output,
        operands: [Slice; 3],
        range: Range,
    ) -> Result<()> {
        let kernels = LinearKernels { sum: None, ..k::linear(self.caps, shape, output)? };
        self.product_by(label, (shape, kernels), operands, &[], (None, range))
    }

    /// A `step` of so many rows, whatever the batch: a range, whose first word is where a step has its tokens.
    /// All else in it is 0.
    pub fn fixed_step(&mut self, rows: usize) -> Slice {
        let Slice { offset, .. } = self.range(Range { row0: rows as u32, ..Range::default() });
        Slice::new(Buffer::Ranges, offset, STEP_BYTES)
    }
}
