//! Attention: over a batch of packed documents, over a key-value cache, and its gradient.

use super::{Lowering, Rows, label};
use crate::arch::Attention;
use crate::error::{Error, Result};
use crate::graph::{Dropout, Node, Site};
use crate::kernels::{
    self as k, AttentionProducts, AttentionShape, Constant, KeyValueOwner, KvCache, Parts, Spec,
};
use crate::layout::{Cache, Fusion, RotatedBy, attention_shape};
use crate::plan::{Buffer, Launch, Slice};

/// Bytes of [`Buffer::Probe`].
const PROBE_BYTES: u64 = 16;

/// Bytes of a layer's cache of `rows` rows.
pub fn cache_bytes(cache: KvCache, shape: &AttentionShape, rows: usize) -> u64 {
    rows as u64 * shape.row_words(cache) as u64 * 4
}

impl Lowering<'_> {
    pub(super) fn shape(&self, attention: Attention) -> AttentionShape {
        let ring = match self.rows {
            Rows::Batch { .. } | Rows::Texts { .. } => None,
            Rows::Chunk(cache) | Rows::One(cache) | Rows::Several { cache, .. } => cache.ring,
        };
        // A chunk of a prompt reads its cache in f32.
        let half = self.matrices.mixed && matches!(self.rows, Rows::Batch { .. });
        AttentionShape { half, ..attention_shape(attention, self.builder.tokens, ring) }
    }

    /// The shape of a kernel that leaves out probabilities.
    fn dropped(&self, attention: Attention, dropout: Option<Dropout>) -> AttentionShape {
        let rate = dropout.map(|dropout| Constant(dropout.rate));
        AttentionShape { dropout: rate, ..self.shape(attention) }
    }

    pub(super) fn attention(
        &mut self,
        node: &Node,
        attention: Attention,
        dropout: Option<Dropout>,
    ) -> Result<()> {
        match self.rows {
            Rows::Batch { .. } => {
                let qkv = self.read(node, 0)?;
                let flops = self.attention_flops(attention, 2.0);
                self.attend_rows(node, (attention, dropout), qkv, false, flops)
            }
            Rows::Chunk(cache) => self.attend_chunk(node, attention, cache).map(drop),
            Rows::Texts { cache, places } => {
                let qkv = self.read(node, 0)?;
                self.append(node.site, attention, cache, (qkv, Some(places)))?;
                let flops = self.attention_flops(attention, 2.0);
                self.attend_rows(node, (attention, None), qkv, false, flops)
            }
            Rows::One(_) | Rows::Several { .. } => {
                Err(Error::internal("decoded rows have nodes of their own"))
            }
        }
    }

    /// Attention of a chunk of a prompt to the cache, its own keys and values appended; gives what it read.
    fn attend_chunk(&mut self, node: &Node, attention: Attention, cache: Cache) -> Result<Slice> {
        let keys = self.append(node.site, attention, cache, (self.read(node, 0)?, None))?;
        let keys = self.expand(node.site, attention, cache, keys)?;
        let rows = self.builder.tokens;
        let flops = 4.0 * (rows * rows * attention.width()) as f64;
        self.attend_rows(node, (attention, None), keys, true, flops)?;
        Ok(keys)
    }

    /// Attention of a chunk of a prompt, and how much its queries attend to each key: of the head that
    /// [`Buffer::Probe`] names, into [`Buffer::Probabilities`], which holds so many elements.
    pub(super) fn probabilities(
        &mut self,
        node: &Node,
        attention: Attention,
        elements: u64,
    ) -> Result<()> {
        let Rows::Chunk(cache) = self.rows else {
            return Err(Error::internal("only chunks of a prompt are probed"));
        };
        let keys = self.attend_chunk(node, attention, cache)?;
        let (query, logsumexp) = (self.read(node, 0)?, self.written(node, 1)?);
        let kernel =
            k::AttentionProbabilities { shape: self.shape(attention) }.kernel(self.builder.caps)?;
        let to = Slice::new(Buffer::Probabilities, 0, elements * 4);
        let launch = Launch::new(label(node.site, "probabilities"), kernel)
            .bind("query", query)
            .bind("keys", keys)
            .bind("documents", self.inputs.documents)
            .bind("lse", logsumexp)
            .bind("probabilities", to)
            .bind("probe", Slice::new(Buffer::Probe, 0, PROBE_BYTES));
        let rows = self.builder.tokens;
        self.builder.dispatch(launch.flops(2.0 * (rows * rows * attention.head_dim) as f64))
    }

    /// Attention of many rows to the keys and values of `keys`: those of the same rows, or a cache's.
    pub(super) fn attend_rows(
        &mut self,
        node: &Node,
        (attention, dropout): (Attention, Option<Dropout>),
        keys: Slice,
        cached: bool,
        flops: f64,
    ) -> Result<()> {
        let qkv = self.read(node, 0)?;
        let (output, logsumexp) = (self.written(node, 0)?, self.written(node, 1)?);
        let halves = self.layouts.forward_f16(node);
        let shape = AttentionShape { halves, ..self.dropped(attention, dropout) };
        let kernel = k::AttentionForward { shape, cached, tile: None }.kernel(self.builder.caps)?;
        let launch = Launch::new(node.site, kernel)
            .bind("query", qkv)
            .bind("keys", keys)
            .bind("documents", self.inputs.documents)
            .bind("output", output)
            .bind("lse", logsumexp)
            .bind_some("range", dropout.map(|dropout| self.mask_range(dropout.place)));
        self.builder.dispatch(launch.flops(flops))
    }

    /// `products` of tokens × tokens / 2 × head_dim for every head.
    pub(super) fn attention_flops(&self, attention: Attention, products: f64) -> f64 {
        let tokens = self.builder.tokens as f64;
        products * tokens * tokens * attention.width() as f64
    }

    /// The layer's cache.
    pub(super) fn cache(&self, site: Site, attention: Attention, cache: Cache) -> Result<Slice> {
        let none = || Error::internal(format!("{site} is in no layer"));
        let layer = site.layer.ok_or_else(none)?;
        let bytes = cache_bytes(cache.format, &self.shape(attention), cache.sequences * cache.rows);
        let of_batch =
            matches!(self.rows, Rows::Several { shared: false, .. } | Rows::Texts { .. });
        let buffer = if of_batch { Buffer::BatchCache(layer) } else { Buffer::Cache(layer) };
        Ok(Slice::new(buffer, 0, bytes))
    }

    /// Keys and values of `qkv` into the layer's cache: of rows of several texts to the places that `documents` tell.
    pub(super) fn append(
        &mut self,
        site: Site,
        attention: Attention,
        cache: Cache,
        (qkv, documents): (Slice, Option<Slice>),
    ) -> Result<Slice> {
        let slice = self.cache(site, attention, cache)?;
        let (caps, shape) = (self.builder.caps, self.shape(attention));
        let kernel = if documents.is_some() {
            k::CacheAppendSeveral { shape, cache: cache.format }.kernel(caps)
        } else {
            k::CacheAppend { shape, cache: cache.format }.kernel(caps)
        }?;
        let launch = Launch::new(Site { what: "cache append", ..site }, kernel)
            .bind("qkv", qkv)
            .bind("cache", slice)
            .bind_some("documents", documents);
        self.builder.dispatch(launch)?;
        Ok(slice)
    }

    /// The cache as the kernels of a prefill read it: the rows of a packed one in f32, in a tensor
    /// that the layers share.
    fn expand(
        &mut self,
        site: Site,
        attention: Attention,
        cache: Cache,
        keys: Slice,
    ) -> Result<Slice> {
        if cache.format == KvCache::F32 {
            return Ok(keys);
        }
        let shape = self.shape(attention);
        let elements = cache.rows as u64 * shape.cache_stride() as u64;
        let rows = self.builder.tensor("expanded cache", elements)?;
        let kernel = k::CacheExpand { shape, cache: cache.format }.kernel(self.builder.caps)?;
        let launch = Launch::new(Site { what: "cache expand", ..site }, kernel);
        self.builder.dispatch(launch.bind("rows", rows).bind("cache", keys))?;
        Ok(rows)
    }

    /// Delta, then the gradients of queries, keys and values.
    pub(super) fn attention_backward(
        &mut self,
        node: &Node,
        (attention, dropout): (Attention, Option<Dropout>),
        fusion: &Fusion,
    ) -> Result<()> {
        let Fusion::AttentionBackward { rotation, tiles, .. } = *fusion else {
            return Err(Error::internal(format!("{} has no layout", node.site)));
        };
        let (qkv, output, logsumexp) =
            (self.read(node, 0)?, self.read(node, 1)?, self.read(node, 2)?);
        // Of partial sums, the first kernel also writes what they add up to, for the others.
        let (read, parts) = self.read_parts(node, 3, fusion)?;
        let d_output = self.value(node.reads[3])?;
        let summed = parts != Parts::WHOLE;
        let halves = self.layouts.backward_f16(node, node.writes[0]);
        let shape = AttentionShape { halves, ..self.shape(attention) };
        let delta = self.tensor("delta", shape.heads)?;
        let kernel = k::AttentionDelta { shape, parts }.kernel(self.builder.caps)?;
        let launch = Launch::new(label(node.site, "delta"), kernel)
            .bind("output", output)
            .bind("d_output", read)
            .bind("delta", delta)
            .bind_some("whole", summed.then_some(d_output));
        self.builder.dispatch(launch.flops(2.0 * (self.builder.tokens * shape.width()) as f64))?;
        let target = rotation.map_or(node.writes[0], |(rope, _)| self.graph.nodes[rope].writes[0]);
        let d_qkv = self.value(target)?;
        let reads = [qkv, d_output, logsumexp, delta, self.inputs.documents];
        let by = rotation.map(|(_, by)| by);
        let shape = AttentionShape {
            halves: self.layouts.backward_f16(node, target),
            turned: by == Some(RotatedBy::Gradients),
            ..self.dropped(attention, dropout)
        };
        let of = (attention, shape, dropout);
        let parts = match tiles {
            Some(tiles) => {
                self.gradients_by_products(node.site, (attention, shape, tiles), reads, d_qkv)?
            }
            None => self.query_key_value_gradients(node.site, of, reads, d_qkv)?,
        };
        let turned = by == Some(RotatedBy::GroupSum);
        let shape = AttentionShape { dropout: None, turned, ..shape };
        let sum = |parts| self.group_sum(node.site, (attention, shape), parts, d_qkv);
        parts.map_or(Ok(()), sum)
    }

    /// The gradients by products, with room for so many tiles of each head. Gives what is to be added up by groups.
    fn gradients_by_products(
        &mut self,
        site: Site,
        (attention, shape, tiles): (Attention, AttentionShape, usize),
        [qkv, d_output, logsumexp, delta, _]: [Slice; 5],
        d_qkv: Slice,
    ) -> Result<Option<Slice>> {
        let (caps, layout) = (self.builder.caps, self.batch()?.0);
        let elements = (shape.heads * tiles) as u64 * (k::STRIP * k::STRIP) as u64;
        let p = self.builder.tensor("probabilities", elements)?;
        let d_scores = self.builder.tensor("score gradients", elements)?;
        let shared = shape.heads > shape.kv_heads;
        let parts = if shared { Some(self.gradients_by_head(shape)?) } else { None };
        let table = shape.turned.then(|| self.angles(attention)).transpose()?;
        for &products in k::attention_products(caps, shape) {
            let (name, count) = match products {
                AttentionProducts::Scores => ("scores", 2.0),
                AttentionProducts::Sums => ("query, key, value", 3.0),
                AttentionProducts::QuerySums => ("query", 1.0),
                AttentionProducts::KeyValueSums => ("key, value", 2.0),
            };
            let ends = layout.padded;
            let kernel =
                k::AttentionBackwardProducts { shape, tiles, ends, products }.kernel(caps)?;
            let launch = Launch::new(label(site, name), kernel)
                .bind("qkv", qkv)
                .bind("d_output", d_output)
                .bind("documents", layout.tables())
                .bind("d_scores", d_scores);
            let launch = if products == AttentionProducts::Scores {
                launch.bind("lse", logsumexp).bind("delta", delta).bind("gradient", p)
            } else {
                launch
                    .bind("probabilities", p)
                    .bind("gradient", d_qkv)
                    .bind_some("parts", parts)
                    .bind_some("table", table)
            };
            self.builder.dispatch(launch.flops(self.attention_flops(attention, count)))?;
        }
        Ok(parts)
    }

    /// The gradients of keys and values that each query head leaves.
    fn gradients_by_head(&mut self, shape: AttentionShape) -> Result<Slice> {
        self.tensor("key and value gradients by head", 2 * shape.width())
    }

    fn group_sum(
        &mut self,
        site: Site,
        (attention, shape): (Attention, AttentionShape),
        parts: Slice,
        d_qkv: Slice,
    ) -> Result<()> {
        let kernel = k::AttentionGroupSum { shape }.kernel(self.builder.caps)?;
        let mut flops = (2 * self.builder.tokens * shape.width()) as f64;
        let mut launch = Launch::new(label(site, "group sum"), kernel).bind("parts", parts);
        if shape.turned {
            flops += self.rotation_flops(shape.turning());
            launch = launch
                .bind("table", self.angles(attention)?)
                .bind("documents", self.inputs.documents)
                .bind("rows", d_qkv);
        } else {
            launch = launch.bind("d_qkv", d_qkv);
        }
        self.builder.dispatch(launch.flops(flops))
    }

    /// Gives what is to be added up by groups.
    fn query_key_value_gradients(
        &mut self,
        site: Site,
        (attention, shape, dropout): (Attention, AttentionShape, Option<Dropout>),
        reads: [Slice; 5],
        d_qkv: Slice,
    ) -> Result<Option<Slice>> {
        let caps = self.builder.caps;
        let place = dropout.map(|dropout| self.mask_range(dropout.place));
        let table = shape.turned.then(|| self.angles(attention)).transpose()?;
        let padded = self.batch()?.0.padded;
        let owner = k::key_value_owner(caps, shape);
        let of_query = k::AttentionBackwardQuery { shape, tile: None }.kernel(caps)?;
        let of_key =
            k::AttentionBackwardKeyValue { shape, owner, ends: padded, tile: None }.kernel(caps)?;
        let [qkv, d_output, logsumexp, delta, documents] = reads;
        let launch = |what: &str, kernel, gradient| {
            Launch::new(label(site, what), kernel)
                .bind("qkv", qkv)
                .bind("d_output", d_output)
                .bind("lse", logsumexp)
                .bind("delta", delta)
                .bind("documents", documents)
                .bind("gradient", gradient)
                .bind_some("range", place)
                .bind_some("table", table)
        };
        let query = launch("query", of_query, d_qkv).flops(self.attention_flops(attention, 3.0));
        self.builder.dispatch(query)?;
        let parts = match owner {
            KeyValueOwner::Group => None,
            KeyValueOwner::Head => Some(self.gradients_by_head(shape)?),
        };
        let key_value = launch("key, value", of_key, parts.unwrap_or(d_qkv));
        self.builder.dispatch(key_value.flops(self.attention_flops(attention, 4.0)))?;
        Ok(parts)
    }
}
