//! Products in a plan.

use super::{Buffer, Builder, Launch, NamedSlice, Range, STEP_BYTES, Slice};
use crate::error::Result;
use crate::kernels::{AdaptedProduct, LinearProduct, LinearShape, LowRankShape, Output};

/// More terms of a product's sums, which an adapter adds.
#[derive(Clone, Copy, Debug)]
pub struct LowRankTerms {
    pub shape: LowRankShape,
    pub short_rows: Slice,
    /// Its matrices.
    pub weights: Slice,
}

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
        added: &[NamedSlice],
        at: (Option<Slice>, Range),
    ) -> Result<()> {
        let product = LinearProduct::picked(self.caps, *shape, output);
        self.product_by(label, product, operands, added, at, None)
    }

    /// As [`Builder::product`], with this choice of parts and tile, and more terms if there are any.
    ///
    /// # Errors
    /// As [`Builder::product`].
    pub fn product_by(
        &mut self,
        label: &str,
        product: LinearProduct,
        [a, b, c]: [Slice; 3],
        added: &[NamedSlice],
        (step, range): (Option<Slice>, Range),
        more: Option<LowRankTerms>,
    ) -> Result<()> {
        let Some(sum) = product.sum() else {
            let launch = self.product_launch(label, product, (step, range), more)?;
            let launch = launch.bind("a", a).bind("b", b).bind("c", c);
            return self.dispatch(launch.bind_all(added.iter().copied()));
        };
        let elements = sum.elements();
        let parts = self.tensor("parts of a product", elements)?;
        let launch = self.product_launch(label, product, (step, range), more)?;
        self.dispatch(launch.bind("a", a).bind("b", b).bind("c", parts))?;
        let sum = Launch::new(format!("{label} sum"), self.kernel(sum)?).rows(range);
        let sum = sum.bind_some("step", step).bind("parts", parts).bind("c", c);
        self.dispatch(sum.bind_all(added.iter().copied()).flops(elements as f64))
    }

    /// The first stage of a product whose K is split, into `splits` parts: what reads them adds them up.
    ///
    /// # Errors
    /// As [`Builder::product`].
    pub fn product_in_parts(
        &mut self,
        label: &str,
        (shape, splits): (LinearShape, usize),
        output: Output,
        [a, b, c]: [Slice; 3],
        range: Range,
        more: Option<LowRankTerms>,
    ) -> Result<()> {
        let product = LinearProduct { shape, output, splits, tile: None };
        let launch = self.product_launch(label, product, (None, range), more)?;
        self.dispatch(launch.bind("a", a).bind("b", b).bind("c", c))
    }

    fn product_launch(
        &mut self,
        label: &str,
        product: LinearProduct,
        (step, range): (Option<Slice>, Range),
        more: Option<LowRankTerms>,
    ) -> Result<Launch> {
        let LinearShape { n, k, tokens, .. } = product.shape;
        self.products.push(product.shape);
        let kernel = match more {
            Some(LowRankTerms { shape: low, .. }) => {
                self.kernel(AdaptedProduct { product, low })?
            }
            None => self.kernel(product)?,
        };
        let short = more.map_or(0, |more| more.shape.short);
        let flops = 2.0 * n as f64 * (k + short) as f64 * tokens as f64;
        let launch = Launch::new(label, kernel)
            .rows(range)
            .flops(flops)
            .bind_some("short_rows", more.map(|more| more.short_rows))
            .bind_some("low_rank", more.map(|more| more.weights));
        Ok(launch.bind_some("step", step))
    }

    /// A `step` of `rows` rows, whatever the batch: a range, whose first word is where a step has its tokens. All else
    /// in it is 0.
    pub fn fixed_step(&mut self, rows: usize) -> Slice {
        let Slice { offset, .. } = self.range(Range { row0: rows as u32, ..Range::default() });
        Slice::new(Buffer::Ranges, offset, STEP_BYTES)
    }
}
