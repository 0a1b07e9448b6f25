//! Gradients of weights by products split along K: their parts wait until one dispatch adds up those of several.

use super::Lowering;
use crate::error::Result;
use crate::kernels::{self as k, GradientParts, GradientSums, LinearShape, WriteMode};
use crate::plan::{Builder, Launch, Range, Slice};

/// Most tokens of a step whose products wait. In a longer one a dispatch is little of the time, and parts that wait leave
/// the GPU's cache: eight documents of seed took 0.6 % longer on an H200.
const MOST_TOKENS: usize = 1024;

/// Products whose parts are in one tensor, and whose gradients are in one shard, each in front of the one before.
#[derive(Debug)]
pub(super) struct WaitingProducts {
    label: String,
    sums: GradientSums,
    parts: Slice,
    /// From the last gradient to the first one.
    gradients: Slice,
}

impl WaitingProducts {
    fn new(label: String, mode: WriteMode, parts: Slice, gradient: Slice) -> Self {
        let sums = GradientSums { mode, count: 0, each: Default::default() };
        let gradients = Slice { offset: gradient.offset + gradient.bytes, bytes: 0, ..gradient };
        Self { label, sums, parts, gradients }
    }

    /// Makes room for one more product's parts. None where its gradient is in another shard or behind the others, where it
    /// is written in another way, or where more than `most` bytes would wait.
    fn place(
        &mut self,
        builder: &mut Builder<'_>,
        (mode, gradient): (WriteMode, Slice),
        bytes: u64,
        most: u64,
    ) -> Option<Slice> {
        let fits = mode == self.sums.mode
            && self.sums.count < GradientSums::MOST
            && gradient.buffer == self.gradients.buffer
            && gradient.offset + gradient.bytes <= self.gradients.offset;
        let own = fits.then(|| builder.extend(self.parts, bytes, most)).flatten()?;
        self.parts.bytes = own.offset + own.bytes;
        Some(own)
    }

    /// Adds a product that leaves its parts in `own`.
    fn push(&mut self, gradient: Slice, own: Slice, count: usize) {
        let places = [own.offset, gradient.offset].map(|bytes| bytes as usize / 4);
        self.sums.each[self.sums.count] =
            GradientParts { elements: gradient.bytes as usize / 4, count, places };
        self.sums.count += 1;
        let bytes = self.gradients.offset + self.gradients.bytes - gradient.offset;
        self.gradients = Slice { bytes, ..gradient };
    }
}

impl Lowering<'_> {
    /// A product `a`ᵀ · `b` that is split along K, without the second stage. False, and no dispatch, where K is whole,
    /// the step is long, the parts are more than may wait, or the product is added to an earlier one.
    pub(super) fn gradient_waits(
        &mut self,
        label: &str,
        shape: &LinearShape,
        [a, b, gradient]: [Slice; 3],
        (mode, range): (WriteMode, Range),
    ) -> Result<bool> {
        if mode == WriteMode::Add {
            // What it is added to may wait itself.
            self.sum_products()?;
            return Ok(false);
        }
        if self.builder.tokens > MOST_TOKENS {
            return Ok(false);
        }
        let Some((kernel, parts)) = self.builder.split(shape, mode)? else { return Ok(false) };
        let elements = (parts.count * parts.apart) as u64;
        if 4 * elements > self.waiting.most {
            return Ok(false);
        }
        let place = self.parts_place(label, (mode, gradient), elements)?;
        if let Some(waiting) = &mut self.waiting.products {
            waiting.push(gradient, place, parts.count);
        }
        let (operands, step) = ([a, b, place], self.builder.step());
        self.builder.product_in_parts(label, (shape, kernel), operands, (step, range))?;
        Ok(true)
    }

    /// Room for parts, beside those that wait or in a new tensor.
    fn parts_place(&mut self, label: &str, of: (WriteMode, Slice), elements: u64) -> Result<Slice> {
        let (most, builder) = (self.waiting.most, &mut self.builder);
        let waiting = self.waiting.products.as_mut();
        if let Some(place) = waiting.and_then(|all| all.place(builder, of, 4 * elements, most)) {
            return Ok(place);
        }
        self.sum_products()?;
        let parts = self.builder.tensor("parts of weights' gradients", elements)?;
        let (mode, gradient) = of;
        self.waiting.products =
            Some(WaitingProducts::new(format!("{label} sum"), mode, parts, gradient));
        Ok(parts)
    }

    /// Adds up the parts that wait.
    pub(super) fn sum_products(&mut self) -> Result<()> {
        let Some(waiting) = self.waiting.products.take() else { return Ok(()) };
        let WaitingProducts { label, mut sums, parts, gradients } = waiting;
        for one in &mut sums.each[..sums.count] {
            one.places[1] -= gradients.offset as usize / 4;
        }
        let kernel = k::gradient_sum(self.builder.caps, sums)?;
        let launch = Launch::new(label, kernel).bind("parts", parts).bind("gradient", gradients);
        self.builder.dispatch(launch.flops(parts.bytes as f64 / 4.0))
    }
}
