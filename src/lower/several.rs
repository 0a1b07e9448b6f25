//! Nodes of a few decoded rows, each of a text of its own or of the next positions of one.

use super::{Cache, Lowering, label};
use crate::arch::Attention;
use crate::error::Result;
use crate::graph::{Node, Site};
use crate::kernels as k;
use crate::plan::{Buffer, Builder, Launch, Slice};

impl Lowering<'_> {
    /// Keys and values of whole texts to the cache, and attention of each row to those of its own text.
    pub(super) fn attend_texts(
        &mut self,
        node: &Node,
        attention: Attention,
        cache: Cache,
        places: Slice,
    ) -> Result<()> {
        let (qkv, shape) = (self.read(node, 0)?, self.shape(attention));
        let keys = self.cache(node.site, attention, cache)?;
        let kernel = k::cache_append_several(self.builder.caps, shape, cache.format)?;
        let launch = Launch::new(label(node.site, "cache append"), kernel);
        let launch = launch.bind("qkv", qkv).bind("cache", keys).bind("documents", places);
        self.builder.dispatch(launch)?;
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
        let (qkv, documents) = (self.read(node, 0)?, self.inputs.documents);
        let (caps, shape) = (self.builder.caps, self.shape(attention));
        let rows = self.builder.tokens;
        let keys = self.cache(node.site, attention, cache)?;
        if !std::mem::take(&mut self.appended) {
            let kernel = k::cache_append_several(caps, shape, cache.format)?;
            let site = Site { what: "cache append", ..node.site };
            let launch = Launch::new(site.to_string(), kernel);
            let launch = launch.bind("qkv", qkv).bind("cache", keys).bind("documents", documents);
            self.builder.dispatch(launch)?;
        }
        let splits = k::cache_splits(caps, shape, cache.keys, rows)?;
        let kernel = k::attention_decode_several(caps, shape, cache.format, &splits, rows)?;
        let output = self.written(node, 0)?;
        let flops = 4.0 * (rows * cache.rows * attention.width()) as f64;
        let launch = Launch::new(node.site.to_string(), kernel)
            .bind("query", qkv)
            .bind("cache", keys)
            .bind("documents", documents)
            .flops(flops);
        if splits.count == 1 {
            return self.builder.dispatch(launch.bind("output", output));
        }
        let elements = (rows * splits.partials(&shape)) as u64;
        let partials = self.builder.tensor("attention partials", elements)?;
        self.builder.dispatch(launch.bind("partials", partials))?;
        let kernel = k::attention_decode_merge_several(caps, shape, &splits, rows)?;
        let launch = Launch::new(label(node.site, "merge"), kernel)
            .bind("partials", partials)
            .bind("documents", documents)
            .bind("output", output);
        self.builder.dispatch(launch.flops(2.0 * elements as f64))
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
    let words = |buffer, each: u64| Slice::new(buffer, 0, rows * each * 4);
    let launch = Launch::new("sample", kernel)
        .bind("logits", logits)
        .bind("seen", words(Buffer::BatchSeen, vocabulary.div_ceil(32) as u64))
        .bind("token", words(Buffer::BatchTokens, 1))
        .bind("drawn", words(Buffer::BatchDrawn, 2 * turns as u64))
        .bind("documents", words(Buffer::BatchDocuments, 1))
        .bind("choices", Slice::new(Buffer::Choices, 0, rows * CHOICE_BYTES));
    builder.dispatch(launch.flops(10.0 * (rows as usize * vocabulary) as f64))
}
