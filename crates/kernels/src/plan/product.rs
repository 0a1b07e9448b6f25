//! Products in a plan.

use super::{Buffer, Builder, Launch, Operand, Range, STEP_BYTES, Slice};
use crate::error::Result;
use crate::kernels::{self as k, Kernel, LinearShape, Output};

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
        added: &[Operand],
        (step, range): (Slice, Range),
    ) -> Result<()> {
        let linear = k::linear(self.caps, shape, output)?;
        let launch = |label: &str, kernel| {
            let launch = Launch::new(label, kernel).rows(range).bind("step", step);
            launch.bind("c", c).bind_all(added.iter().copied())
        };
        let Some(sum) = linear.sum else {
            self.note_product(*shape);
            let launch = launch(label, linear.product).bind("a", a).bind("b", b);
            return self.dispatch(launch.flops(product_flops(shape)));
        };
        let parts = self.tensor("parts of a product", sum.elements)?;
        self.product_in_parts(label, (shape, linear.product), [a, b, parts], (step, range))?;
        let launch = launch(&format!("{label} sum"), sum.kernel).bind("parts", parts);
        self.dispatch(launch.flops(sum.elements as f64))
    }

    /// The first stage of a product whose K is split, into `parts`: what reads them adds them up.
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
        let launch = Launch::new(label, kernel).rows(range).flops(product_flops(shape));
        self.dispatch(launch.bind("a", a).bind("b", b).bind("c", parts).bind("step", step))
    }

    /// A `step` of so many rows, whatever the batch: a range, whose first word is where a step has its tokens.
    /// All else in it is 0.
    pub fn fixed_step(&mut self, rows: usize) -> Slice {
        let Slice { offset, .. } = self.range(Range { row0: rows as u32, ..Range::default() });
        Slice::new(Buffer::Ranges, offset, STEP_BYTES)
    }
}

fn product_flops(shape: &LinearShape) -> f64 {
    2.0 * shape.n as f64 * shape.k as f64 * shape.tokens as f64
}
