//! Attention: over a batch of packed documents, over a key-value cache, and its gradient.

use super::{Lowering, PassRows, label};
use crate::arch::Attention;
use crate::error::{Error, Result};
use crate::graph::{Dropout, Node, Site};
use crate::kernels::{
    self as k, AttentionProducts, AttentionShape, BackwardRows, BatchAttention, CacheAttention,
    Constant, Kernel, KeyValueOwner, KvCacheFormat, PartialSums, ProductTiles,
};
use crate::layout::{
    CacheLayout, Fusion, RotatedBy, attention_shape, batch_attention, cache_attention,
};
use crate::plan::{Buffer, Launch, Slice};
use std::rc::Rc;

/// Bytes of [`Buffer::Probe`].
const PROBE_BYTES: u64 = 16;

/// Bytes of a layer's cache of `rows` rows.
pub fn cache_bytes(cache: KvCacheFormat, shape: &AttentionShape, rows: usize) -> u64 {
    rows as u64 * shape.row_words(cache) as u64 * 4
}

impl Lowering<'_> {
    /// Attention to the cache of the rows that are lowered.
    pub(super) fn cached(&self, attention: Attention) -> CacheAttention {
        let ring = match self.rows {
            PassRows::Batch { .. } | PassRows::Documents | PassRows::Texts { .. } => None,
            PassRows::Chunk(cache) | PassRows::One(cache) | PassRows::Batched { cache, .. } => {
                cache.ring
            }
        };
        cache_attention(attention, ring)
    }

    /// Attention of the rows of a batch.
    fn batch_of(&self, attention: Attention, dropout: Option<Dropout>) -> BatchAttention {
        BatchAttention {
            dropout: dropout.map(|dropout| Constant(dropout.rate)),
            rounds: self.matrices.mixed || self.matrices.rounds_rows(),
            ..batch_attention(attention, self.builder.tokens)
        }
    }

    pub(super) fn attention(
        &mut self,
        node: &Node,
        attention: Attention,
        dropout: Option<Dropout>,
    ) -> Result<()> {
        match self.rows {
            PassRows::Batch { .. } | PassRows::Documents => {
                let qkv = self.read(node, 0)?;
                let flops = self.attention_flops(attention, 2.0);
                self.attend_rows(node, (attention, dropout), qkv, flops)
            }
            PassRows::Chunk(cache) => self.attend_chunk(node, attention, cache).map(drop),
            PassRows::Texts { cache, places } => {
                let qkv = self.read(node, 0)?;
                self.append(node.site, attention, cache, (qkv, Some(places)))?;
                let flops = self.attention_flops(attention, 2.0);
                self.attend_rows(node, (attention, None), qkv, flops)
            }
            PassRows::One(_) | PassRows::Batched { .. } => {
                Err(Error::internal("decoded rows have nodes of their own"))
            }
        }
    }

    /// Attention of a chunk of a prompt to the cache, its own keys and values appended; gives what it read.
    fn attend_chunk(
        &mut self,
        node: &Node,
        attention: Attention,
        cache: CacheLayout,
    ) -> Result<Slice> {
        let keys = if self.layouts.appends(node.reads[0]) {
            self.cache(node.site, attention, cache)?
        } else {
            self.append(node.site, attention, cache, (self.read(node, 0)?, None))?
        };
        let keys = self.expand(node.site, attention, cache, keys)?;
        let rows = self.builder.tokens;
        let flops = 4.0 * (rows * rows * attention.width()) as f64;
        let (attention, tokens, rounds) =
            (self.cached(attention), rows, self.matrices.rounds_rows());
        let output_f16 = self.layouts.is_f16(node.writes[0]);
        let kernel =
            k::AttentionForwardCached { attention, tokens, rounds, output_f16, tile: None };
        let kernel = self.builder.kernel(kernel)?;
        self.attend_many(node, kernel, keys, None, flops)?;
        Ok(keys)
    }

    /// Attention of a chunk of a prompt. How much the head in [`Buffer::Probe`] attends to each key goes to
    /// [`Buffer::Probabilities`], which has `elements` elements.
    pub(super) fn probabilities(
        &mut self,
        node: &Node,
        attention: Attention,
        elements: u64,
    ) -> Result<()> {
        let PassRows::Chunk(cache) = self.rows else {
            return Err(Error::internal("only chunks of a prompt are probed"));
        };
        let keys = self.attend_chunk(node, attention, cache)?;
        let (query, logsumexp) = (self.read(node, 0)?, self.written(node, 1)?);
        let kernel =
            self.builder.kernel(k::AttentionProbabilities { attention: self.cached(attention) })?;
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

    /// Attention of the rows of a batch to each other.
    pub(super) fn attend_rows(
        &mut self,
        node: &Node,
        (attention, dropout): (Attention, Option<Dropout>),
        qkv: Slice,
        flops: f64,
    ) -> Result<()> {
        let batch = self.batch_of(attention, dropout);
        let [qkv_f16, output_f16] =
            [node.reads[0], node.writes[0]].map(|value| self.layouts.is_f16(value));
        let kernel = k::AttentionForward { batch, qkv_f16, output_f16, tile: None };
        let kernel = self.builder.kernel(kernel)?;
        self.attend_many(node, kernel, qkv, dropout, flops)
    }

    /// Attention of many rows to the keys and values of `keys`: those of the same rows, or a cache's.
    fn attend_many(
        &mut self,
        node: &Node,
        kernel: Rc<Kernel>,
        keys: Slice,
        dropout: Option<Dropout>,
        flops: f64,
    ) -> Result<()> {
        let qkv = self.read(node, 0)?;
        let (output, logsumexp) = (self.written(node, 0)?, self.written(node, 1)?);
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
    pub(super) fn cache(
        &self,
        site: Site,
        attention: Attention,
        cache: CacheLayout,
    ) -> Result<Slice> {
        let none = || Error::internal(format!("{site} is in no layer"));
        let layer = site.layer.ok_or_else(none)?;
        let bytes =
            cache_bytes(cache.format, &attention_shape(attention), cache.sequences * cache.rows);
        let of_batch =
            matches!(self.rows, PassRows::Batched { one_text: false, .. } | PassRows::Texts { .. });
        let buffer = if of_batch { Buffer::BatchCache(layer) } else { Buffer::Cache(layer) };
        Ok(Slice::new(buffer, 0, bytes))
    }

    /// Keys and values of `qkv` into the layer's cache: of rows of several texts to the places that `documents` tell.
    pub(super) fn append(
        &mut self,
        site: Site,
        attention: Attention,
        cache: CacheLayout,
        (qkv, documents): (Slice, Option<Slice>),
    ) -> Result<Slice> {
        let slice = self.cache(site, attention, cache)?;
        let (rows, batched) = (self.cached(attention).cache(), documents.is_some());
        let kernel = self.builder.kernel(k::CacheAppend { rows, cache: cache.format, batched })?;
        let launch = Launch::new(Site { what: "cache append", ..site }, kernel)
            .bind("qkv", qkv)
            .bind("cache", slice)
            .bind_some("documents", documents);
        self.builder.dispatch(launch)?;
        Ok(slice)
    }

    /// The cache as the kernels of a prefill read it: the rows of a packed one in f32, in a tensor
    /// that the layers share.
    pub(super) fn expand(
        &mut self,
        site: Site,
        attention: Attention,
        cache: CacheLayout,
        keys: Slice,
    ) -> Result<Slice> {
        if cache.format == KvCacheFormat::F32 {
            return Ok(keys);
        }
        let of = self.cached(attention).cache();
        let elements = cache.rows as u64 * of.shape.cache_stride() as u64;
        let rows = self.builder.tensor("expanded cache", elements)?;
        let kernel = self.builder.kernel(k::CacheExpand { rows: of, cache: cache.format })?;
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
        // The first kernel that reads partial sums also writes their total, for the others.
        let (read, sums) = self.read_parts(node, 3, fusion)?;
        let d_output = self.value(node.reads[3])?;
        let summed = sums != PartialSums::WHOLE;
        let batch = self.batch_of(attention, dropout);
        let shape = batch.shape;
        let [output_f16, d_output_f16] = [1, 3].map(|index| self.layouts.is_f16(node.reads[index]));
        let delta = self.tensor("delta", shape.heads)?;
        let kernel =
            self.builder.kernel(k::AttentionDelta { shape, output_f16, d_output_f16, sums })?;
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
        let rows = BackwardRows {
            rotated: by == Some(RotatedBy::Gradients),
            ..self.layouts.backward_rows(node, target)
        };
        let parts = match tiles {
            Some(tiles) => {
                let of = (attention, batch, tiles, rows.rotated);
                self.gradients_by_products(node.site, of, reads, d_qkv)?
            }
            None => {
                let of = (attention, batch, rows, dropout);
                self.query_key_value_gradients(node.site, of, reads, d_qkv)?
            }
        };
        let Some(parts) = parts else { return Ok(()) };
        let (d_qkv_f16, rotated) = (rows.d_qkv_f16, by == Some(RotatedBy::GroupSum));
        let sum = k::AttentionGroupSum { shape, d_qkv_f16, rotated };
        self.group_sum(node.site, (attention, sum), parts, d_qkv)
    }

    /// The gradients by products, some heads after the others. Gives what is to be added up by groups.
    fn gradients_by_products(
        &mut self,
        site: Site,
        (attention, batch, room, rotated): (Attention, BatchAttention, ProductTiles, bool),
        [qkv, d_output, logsumexp, delta, _]: [Slice; 5],
        d_qkv: Slice,
    ) -> Result<Option<Slice>> {
        let (caps, layout) = (self.builder.caps, self.batch()?.0);
        let BatchAttention { shape, scores, window, tokens, .. } = batch;
        let elements = (room.heads * room.tiles) as u64 * (k::STRIP * k::STRIP) as u64;
        let p = self.builder.tensor("probabilities", elements)?;
        let d_scores = self.builder.tensor("score gradients", elements)?;
        let shared = shape.heads > shape.kv_heads;
        let parts = if shared { Some(self.gradients_by_head(shape)?) } else { None };
        let table = rotated.then(|| self.angles(attention)).transpose()?;
        let turns = room.turns(shape.heads).flat_map(|heads| {
            let dispatches = k::attention_products(caps, batch, room).iter();
            dispatches.map(move |&products| (heads.clone(), products))
        });
        for (heads, products) in turns {
            let (name, count) = match products {
                AttentionProducts::Scores => ("scores", 2.0),
                AttentionProducts::Sums => ("query, key, value", 3.0),
                AttentionProducts::QuerySums => ("query", 1.0),
                AttentionProducts::KeyValueSums => ("key, value", 2.0),
            };
            let kernel = self.builder.kernel(k::AttentionBackwardProducts {
                shape,
                scores,
                window,
                tokens,
                rotated,
                tiles: room.tiles,
                first_head: heads.start,
                heads: heads.len(),
                ends: layout.padded,
                products,
            })?;
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
            let share = heads.len() as f64 / shape.heads as f64;
            self.builder.dispatch(launch.flops(self.attention_flops(attention, count * share)))?;
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
        (attention, sum): (Attention, k::AttentionGroupSum),
        parts: Slice,
        d_qkv: Slice,
    ) -> Result<()> {
        let kernel = self.builder.kernel(sum)?;
        let shape = sum.shape;
        let mut flops = (2 * self.builder.tokens * shape.width()) as f64;
        let mut launch = Launch::new(label(site, "group sum"), kernel).bind("parts", parts);
        if sum.rotated {
            flops += self.rotation_flops(shape.rotation());
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
        (attention, batch, rows, dropout): (
            Attention,
            BatchAttention,
            BackwardRows,
            Option<Dropout>,
        ),
        reads: [Slice; 5],
        d_qkv: Slice,
    ) -> Result<Option<Slice>> {
        let caps = self.builder.caps;
        let place = dropout.map(|dropout| self.mask_range(dropout.place));
        let table = rows.rotated.then(|| self.angles(attention)).transpose()?;
        let padded = self.batch()?.0.padded;
        let owner = k::key_value_owner(caps, batch);
        let of_query = k::AttentionBackwardQuery { batch, rows, tile: None };
        let of_query = self.builder.kernel(of_query)?;
        let of_key = k::AttentionBackwardKeyValue { batch, rows, owner, ends: padded, tile: None };
        let of_key = self.builder.kernel(of_key)?;
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
            KeyValueOwner::Head => Some(self.gradients_by_head(batch.shape)?),
        };
        let key_value = launch("key, value", of_key, parts.unwrap_or(d_qkv));
        self.builder.dispatch(key_value.flops(self.attention_flops(attention, 4.0)))?;
        Ok(parts)
    }
}
