//! Nodes of a few decoded rows, each of a text of its own or of the next positions of one.

use super::{Lowering, label};
use crate::arch::Attention;
use crate::error::Result;
use crate::graph::{Node, Site};
use crate::kernels::{self as k, Spec};
use crate::layout::Cache;
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
        let (qkv, label) = (self.read(node, 0)?, label(node.site, "cache append"));
        self.append_rows(label, (node.site, attention), cache, [qkv, places])?;
        let flops = self.attention_flops(attention, 2.0);
        self.attend_rows(node, (attention, None), qkv, false, flops)
    }

    /// Keys and values of rows of several texts to the cache, to the places that `documents` tell.
    pub(super) fn append_rows(
        &mut self,
        label: String,
        (site, attention): (Site, Attention),
        cache: Cache,
        [qkv, documents]: [Slice; 2],
    ) -> Result<()> {
        let (caps, shape) = (self.builder.caps, self.shape(attention));
        let kernel = k::CacheAppendSeveral { shape, cache: cache.format }.kernel(caps)?;
        let launch = Launch::new(label, kernel)
            .bind("qkv", qkv)
            .bind("cache", self.cache(site, attention, cache)?)
            .bind("documents", documents);
        self.builder.dispatch(launch)
    }
}

/// Bytes of a row of [`Buffer::Choices`].
pub const CHOICE_BYTES: u64 = size_of::<crate::plan::RowChoice>() as u64;

/// Appends the drawing of a token for each row of logits.
pub(super) fn sample(
    builder: &mut Builder<'_>,
    logits: Slice,
    vocabulary: usize,
    turns: usize,
) -> Result<()> {
    let rows = builder.tokens as u64;
    let kernel = k::SampleSeveral { vocabulary, rows: builder.tokens }.kernel(builder.caps)?;
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
