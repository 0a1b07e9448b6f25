//! Partial sums that one dispatch adds up for several nodes: of norms' weights, and of products' weights.

use super::pass::LayoutPass;
use super::shapes::{TokenRows, logit_chunks, weight_part};
use super::{LaidNode, PassKind, SharedTensor};
use crate::arch::WeightId;
use crate::caps::ALIGN;
use crate::graph::{Node, Site, label};
use crate::kernels::{
    self as k, Form, GradientParts, GradientSums, LinearShape, PartialSums, SummedWeights,
    WriteMode,
};
use crate::plan::{Buffer, Slice};

/// Most bytes of partial sums that wait for one dispatch.
const MOST_BYTES: u64 = 16 << 20;

/// Most tokens of a step whose products wait. In a longer one a dispatch is little of the time, and parts that wait leave
/// the GPU's cache: eight documents of seed took 0.6 % longer on an H200.
const MOST_TOKENS: usize = 1024;

/// Partial sums of the gradients of norms' weights, added up by one dispatch. Their gradients must be at equal
/// distances. In a Llama that is all norms. Where biases are between them, it is two norms at a time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ColumnSums {
    /// Where the first are from.
    pub site: Site,
    /// Columns, and rows of each partial sum.
    pub shape: [usize; 2],
    pub weights: SummedWeights,
    /// The partial sums of all weights.
    pub partials: Slice,
    /// From the last weight's to the first one's.
    pub gradients: Slice,
}

/// Products whose partial sums are in one tensor, and whose gradients are in one shard, each in front of the one before.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ProductSums {
    pub label: String,
    pub sums: GradientSums,
    pub partials: Slice,
    /// From the last gradient to the first one.
    pub gradients: Slice,
}

impl ProductSums {
    fn push(&mut self, gradient: Slice, own: Slice, count: usize) {
        let places = [own.offset, gradient.offset].map(|bytes| bytes as usize / 4);
        let elements = gradient.bytes as usize / 4;
        self.sums.each[self.sums.count] = GradientParts { elements, count, places };
        self.sums.count += 1;
        let bytes = self.gradients.offset + self.gradients.bytes - gradient.offset;
        self.gradients = Slice { bytes, ..gradient };
    }

    /// The kernel's, whose places of gradients are those in the bound slice.
    pub fn bound_sums(&self) -> GradientSums {
        let mut sums = self.sums;
        for one in &mut sums.each[..sums.count] {
            one.places[1] -= self.gradients.offset as usize / 4;
        }
        sums
    }
}

/// A product that gives a part of a weight's gradient.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct GradientProduct {
    /// Sums that are dispatched between the product before and this one.
    pub sum_before: Option<usize>,
    /// Where its partial sums go, if others are added up with them.
    pub partials: Option<Slice>,
}

/// Bytes of a weight's partial sums.
fn column_bytes(tokens: usize, [columns, rows]: [usize; 2]) -> u64 {
    4 * tokens.div_ceil(rows) as u64 * columns as u64
}

impl LayoutPass<'_> {
    /// Most bytes that wait: none where activations are computed again to save memory.
    fn most_waiting(&self) -> u64 {
        match self.request.kind {
            PassKind::Batch { recompute: false, .. } => MOST_BYTES,
            _ => 0,
        }
    }

    pub(super) fn tensor(&mut self, what: &'static str, bytes: u64) -> Slice {
        let tensors = &mut self.layouts.tensors;
        tensors.push(SharedTensor { what, bytes });
        let id = self.layouts.values.len() + tensors.len() - 1;
        Slice::new(Buffer::Virtual(id), 0, bytes)
    }

    /// Makes a shared tensor longer by `bytes`, if it stays within `most`, and gives what it gained.
    pub(super) fn extend(&mut self, tensor: Slice, bytes: u64, most: u64) -> Option<Slice> {
        let Buffer::Virtual(id) = tensor.buffer else { return None };
        let most = most.min(self.request.caps.limits.binding_bytes());
        let shared = self.layouts.tensors.get_mut(id.checked_sub(self.layouts.values.len())?)?;
        let offset = shared.bytes.next_multiple_of(4 * ALIGN as u64);
        if offset + bytes > most {
            return None;
        }
        shared.bytes = offset + bytes;
        Some(Slice::new(tensor.buffer, offset, bytes))
    }

    fn gradient(&self, weight: WeightId, part: usize) -> Slice {
        weight_part(self.request.state, weight, part, Buffer::Gradients)
    }

    /// Where a norm's backward pass leaves the partial sums of its weight's gradient.
    pub(super) fn column_partials(
        &mut self,
        site: Site,
        (weight, trained): (WeightId, bool),
        shape: [usize; 2],
    ) -> Slice {
        let gradient = trained.then(|| self.gradient(weight, 0));
        if let Some(partials) = gradient.and_then(|gradient| self.joins_columns(gradient, shape)) {
            return partials;
        }
        self.sum_columns();
        let bytes = column_bytes(self.request.tokens, shape);
        let partials = self.tensor("norm weight gradient partials", bytes);
        let weights = SummedWeights::ONE;
        self.columns =
            gradient.map(|gradients| ColumnSums { site, shape, weights, partials, gradients });
        partials
    }

    /// Room for one more weight's partial sums. None where its gradient is not at the same distance as those before,
    /// where its shape differs, or where too many bytes would wait.
    fn joins_columns(&mut self, gradient: Slice, shape: [usize; 2]) -> Option<Slice> {
        let sums = self.columns?;
        let SummedWeights { count, outputs, .. } = sums.weights;
        let apart = sums.gradients.offset.saturating_sub(gradient.offset);
        let known = if count == 1 { apart } else { 4 * outputs as u64 };
        if apart == 0
            || apart != known
            || gradient.buffer != sums.gradients.buffer
            || shape != sums.shape
        {
            return None;
        }
        let bytes = column_bytes(self.request.tokens, shape);
        let own = self.extend(sums.partials, bytes, self.most_waiting())?;
        let partials = own.offset as usize / 4 / count;
        let outputs = apart as usize / 4;
        self.columns = Some(ColumnSums {
            weights: SummedWeights { count: count + 1, partials, outputs },
            partials: Slice { bytes: own.offset + own.bytes, ..sums.partials },
            gradients: Slice { bytes: sums.gradients.bytes + apart, ..gradient },
            ..sums
        });
        Some(own)
    }

    /// Ends a group of norms.
    pub(super) fn sum_columns(&mut self) {
        if let Some(sums) = self.columns.take() {
            self.layouts.nodes.push(LaidNode::ColumnSum(self.layouts.column_sums.len()));
            self.layouts.column_sums.push(sums);
        }
    }

    /// The products of a weight's gradient by rows of tokens.
    pub(super) fn weight_gradient(
        &mut self,
        name: &str,
        weight: WeightId,
        rows: TokenRows,
        write: WriteMode,
    ) -> Vec<GradientProduct> {
        let parts = 0..self.request.matrices.params.matrices[weight].parts.len();
        let of_part = |part| {
            let shape = self.request.matrices.product(Form::MatmulAt, weight, part, rows);
            let gradient = self.gradient(weight, part);
            self.gradient_product(name, &shape, gradient, write)
        };
        parts.map(of_part).collect()
    }

    /// The products of the head's gradient, a chunk of rows of logits at a time.
    pub(super) fn head_gradient(&mut self, weight: WeightId) -> Vec<GradientProduct> {
        let PassKind::Batch { logits, .. } = self.request.kind else { return vec![] };
        let vocabulary = self.request.matrices.params.architecture.vocab_size;
        let mut products = vec![];
        for rows in logit_chunks(vocabulary, self.request.tokens, logits) {
            let first = rows.rows.row0 == 0;
            let write = if first { WriteMode::AddAfterFirst } else { WriteMode::Add };
            products.extend(self.weight_gradient("head weight", weight, rows, write));
        }
        products
    }

    /// A product that leaves partial sums beside others' where its K is split, the step is short and it is the first
    /// one that writes a gradient.
    fn gradient_product(
        &mut self,
        name: &str,
        shape: &LinearShape,
        gradient: Slice,
        mode: WriteMode,
    ) -> GradientProduct {
        if mode == WriteMode::Add {
            // What it is added to may wait itself.
            return GradientProduct { sum_before: self.end_products(), partials: None };
        }
        let parts = k::linear_parts(self.request.caps, shape);
        let bytes = 4 * parts.count as u64 * parts.apart as u64;
        let long = self.request.tokens > MOST_TOKENS;
        if long || parts == PartialSums::WHOLE || bytes > self.most_waiting() {
            return GradientProduct::default();
        }
        if let Some(own) = self.joins_products((mode, gradient), bytes) {
            self.push_product(gradient, own, parts.count);
            return GradientProduct { sum_before: None, partials: Some(own) };
        }
        let sum_before = self.end_products();
        let partials = self.tensor("parts of weights' gradients", bytes);
        let sums = GradientSums { mode, count: 0, each: Default::default() };
        let gradients = Slice { offset: gradient.offset + gradient.bytes, bytes: 0, ..gradient };
        let label = format!("{name} sum");
        self.products = Some(ProductSums { label, sums, partials, gradients });
        self.push_product(gradient, partials, parts.count);
        GradientProduct { sum_before, partials: Some(partials) }
    }

    fn push_product(&mut self, gradient: Slice, own: Slice, count: usize) {
        if let Some(products) = &mut self.products {
            products.push(gradient, own, count);
        }
    }

    /// Room for one more product's partial sums. None where its gradient is in another shard or after the others, where
    /// it is written in another way, or where too many bytes would wait.
    fn joins_products(
        &mut self,
        (mode, gradient): (WriteMode, Slice),
        bytes: u64,
    ) -> Option<Slice> {
        let waiting = self.products.as_ref()?;
        let fits = mode == waiting.sums.mode
            && waiting.sums.count < GradientSums::MOST
            && gradient.buffer == waiting.gradients.buffer
            && gradient.offset + gradient.bytes <= waiting.gradients.offset;
        let partials = waiting.partials;
        let own = fits.then(|| self.extend(partials, bytes, self.most_waiting())).flatten()?;
        self.products.as_mut()?.partials.bytes = own.offset + own.bytes;
        Some(own)
    }

    /// Ends a group of products: the index of their sums, which have no place among the nodes yet.
    fn end_products(&mut self) -> Option<usize> {
        let sums = self.products.take()?;
        self.layouts.product_sums.push(sums);
        Some(self.layouts.product_sums.len() - 1)
    }

    pub(super) fn sum_products(&mut self) {
        let ended = self.end_products();
        self.layouts.nodes.extend(ended.map(LaidNode::ProductSum));
    }

    pub(super) fn linear_weight(
        &mut self,
        node: &Node,
        weight: WeightId,
        rows: TokenRows,
        write: WriteMode,
    ) -> Vec<GradientProduct> {
        let name = label(node.site, "weight");
        let mut products = self.weight_gradient(&name, weight, rows, write);
        // Sums in front of the first product are a node of their own.
        let before = products.first_mut().and_then(|first| first.sum_before.take());
        self.layouts.nodes.extend(before.map(LaidNode::ProductSum));
        products
    }
}
