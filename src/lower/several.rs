//! Nodes of a few decoded rows, each of a text of its own or of the next positions of one.

use super::{Cache, Lowering, label};
use crate::arch::Attention;
use crate::error::Result;
use crate::graph::{Node, Site};
use crate::kernels as k;
use crate::plan::{Buffer, Builder, Slice};

impl Lowering<'_> {
    /// Keys and values of whole texts to the cache, and attention of each row to those of its own text.
    pub(super) fn attend_texts(
        &mut self,
        node: &Node,
        attention: Attention,
        cache: Cache,
        places: Slice,
    ) -> Result<()> {
        let (qkv, shape) = (self.read(node, 0), self.shape(attention));
        let keys = self.cache(node.site, attention, cache);
        let kernel = k::cache_append_several(self.builder.caps, shape, cache.format)?;
        let slices = vec![qkv, keys, self.builder.step(), places];
        self.builder.dispatch(label(node.site, "cache append"), kernel, slices, 0.0)?;
        let flops = self.attention_flops(attention, 2.0);
        self.attend_rows(node, (attention, None), qkv, false, flops)
    }

    /// Attention of each row to its own text, its key and value appended unless they are there.
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
        if !std::mem::take(&mut self.appended) {
            let kernel = k::cache_append_several(caps, shape, cache.format)?;
            let site = Site { what: "cache append", ..node.site };
            let slices = vec![qkv, keys, step, documents];
            self.builder.dispatch(site.to_string(), kernel, slices, 0.0)?;
        }
        let splits = k::cache_splits(caps, shape, cache.keys, rows)?;
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
