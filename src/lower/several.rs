//! Nodes of a few decoded rows, each of a text of its own or of the next positions of one.

use super::{Cache, Lowering, label};
use crate::arch::{Attention, WeightId};
use crate::error::Result;
use crate::graph::{Node, Site};
use crate::kernels::{self as k, MatvecRowsShape, Output};
use crate::plan::{Buffer, Builder, Range, Slice};

impl Lowering<'_> {
    /// [`Lowering::product_rows`] where the matrix is read once, as it is held, for all rows.
    pub(super) fn few_rows(
        &mut self,
        label: &str,
        weight: WeightId,
        [input, to]: [Slice; 2],
        (output, added): (Output, &[Slice]),
    ) -> Result<()> {
        let matrix = self.params.matrices[weight].clone();
        for (index, part) in matrix.parts.iter().enumerate() {
            let shape = MatvecRowsShape {
                n: part.rows,
                k: matrix.cols,
                rows: self.builder.tokens,
                stride: matrix.rows,
                output,
                weights: self.format(weight),
            };
            let kernel = k::matvec_rows(self.builder.caps, shape)?;
            let (col0, cols) = (part.row0 as u32, part.rows as u32);
            let range = Range { col0, cols, ..self.builder.all_rows() };
            let rows = self.row_operand(weight, index);
            let mut slices = vec![input, rows, to, self.builder.range(range)];
            slices.extend_from_slice(added);
            let flops = 2.0 * (shape.rows * shape.n * shape.k) as f64;
            self.builder.dispatch_rows(label, kernel, slices, range, flops)?;
        }
        Ok(())
    }

    /// Attention of each row to its own text, its key and value appended.
    pub(super) fn attend_several(
        &mut self,
        node: &Node,
        attention: Attention,
        cache: Cache,
    ) -> Result<()> {
        let (qkv, documents) = (self.read(node, 0), self.inputs.documents);
        let (caps, shape) = (self.builder.caps, self.shape(attention));
        let (rows, step) = (self.builder.tokens, self.builder.step());
        let keys = self.cache(node.site, attention, cache);
        let kernel = k::cache_append_several(caps, shape, cache.format)?;
        let site = Site { what: "cache append", ..node.site };
        let slices = vec![qkv, keys, step, documents];
        self.builder.dispatch(site.to_string(), kernel, slices, 0.0)?;
        let positions = self.params.architecture.positions;
        let splits = k::decode_splits(caps, shape, positions, rows)?;
        let kernel = k::attention_decode_several(caps, shape, cache.format, &splits, rows)?;
        let output = self.written(node, 0)?;
        let flops = 4.0 * (rows * cache.rows * attention.width()) as f64;
        if splits.count == 1 {
            let slices = vec![qkv, keys, documents, output, step];
            return self.builder.dispatch(node.site.to_string(), kernel, slices, flops);
        }
        let partials = (rows * splits.partials(&shape)) as u64;
        let parts = self.builder.tensor("attention partials", partials)?;
        let slices = vec![qkv, keys, documents, parts, step];
        self.builder.dispatch(node.site.to_string(), kernel, slices, flops)?;
        let kernel = k::attention_decode_merge_several(caps, shape, &splits, rows)?;
        let slices = vec![parts, documents, output, step];
        self.builder.dispatch(label(node.site, "merge"), kernel, slices, 2.0 * partials as f64)
    }
}

/// Bytes of a row of [`Buffer::Choices`].
pub const CHOICE_BYTES: u64 = 48;

/// Appends the drawing of a token for each row of logits.
pub(super) fn sample(
    builder: &mut Builder<'_>,
    logits: Slice,
    vocabulary: usize,
    turns: usize,
) -> Result<()> {
    let rows = builder.tokens as u64;
    let kernel = k::sample_several(builder.caps, vocabulary, builder.tokens)?;
    let slices = vec![
        logits,
        Slice::new(Buffer::BatchSeen, 0, rows * vocabulary.div_ceil(32) as u64 * 4),
        Slice::new(Buffer::BatchTokens, 0, rows * 4),
        Slice::new(Buffer::BatchDrawn, 0, rows * turns as u64 * 8),
        Slice::new(Buffer::BatchDocuments, 0, rows * 4),
        Slice::new(Buffer::Choices, 0, rows * CHOICE_BYTES),
    ];
    builder.dispatch("sample", kernel, slices, 10.0 * (rows as usize * vocabulary) as f64)
}
