//! Decode attention over the key-value cache in each of its forms, and the merge of its ranges.

use super::forward::{HEADS, SOFTMAX, Setting};
use crate::kernels::attention::twin::causal::{
    CausalAttention, PartialSoftmax, attention_decode, attention_decode_merge,
    attention_decode_split,
};
use crate::kernels::cache::twin::{
    cache_append_f16, cache_append_int8, cache_expand_f16, cache_expand_int8,
};
use crate::kernels::{
    self as k, DecodeOver, DecodeSplits, Kernel, KvCacheFormat, PARTIAL_STATE, RANGE_KEYS,
    SplitReason,
};
use crate::testing::harness::{Job, Operand, POISON, Step};
use crate::testing::lane::Lane;
use crate::testing::measure::{close, forbid, narrow, of, text, wide};
use crate::testing::{Case, Outcome};
use std::rc::Rc;

pub(crate) type Heads = (usize, usize, usize);

pub(crate) fn shapes(heads: Heads, tokens: usize) -> (CausalAttention, k::CacheAttention) {
    let setting = Setting::plain(heads);
    (setting.twin(tokens), setting.cached(None))
}

pub(crate) fn cases() -> Vec<Case> {
    let mut cases = vec![];
    for cache in KvCacheFormat::ALL {
        let name = cache.name();
        let ring = move |lane| ring(lane, cache);
        cases.push(Case::new(format!("attention decode with a ring, {name} cache"), ring));
        for heads in HEADS {
            let (n, kv, dim) = heads;
            // The forms of the cache differ in how a vector is read alone.
            if cache != KvCacheFormat::F32 && !matches!(dim, 4 | 64) {
                continue;
            }
            let named = format!("attention decode {n}/{kv} heads of {dim}, {name} cache");
            cases.push(Case::new(named, move |lane| decode(lane, heads, cache)));
        }
    }
    cases.push(Case::new("attention decode of large scores", large_scores));
    cases.push(Case::new("attention decode of long caches", long));
    cases.push(Case::new("attention decode with a window", window));
    cases.push(Case::new("attention decode merge", merge));
    cases
}

pub(crate) fn ranges(count: usize) -> DecodeSplits {
    DecodeSplits::given(count)
}

/// Rows of a cache as the words of its form.
pub(crate) fn packed(cache: KvCacheFormat, shape: CausalAttention, rows: &[f32]) -> Vec<u32> {
    match cache {
        KvCacheFormat::F32 => rows.iter().map(|x| x.to_bits()).collect(),
        KvCacheFormat::F16 => cache_append_f16(rows),
        KvCacheFormat::Int8 => cache_append_int8(shape, rows),
    }
}

/// What the words of a cache stand for.
pub(crate) fn expanded(cache: KvCacheFormat, shape: CausalAttention, words: &[u32]) -> Vec<f64> {
    match cache {
        KvCacheFormat::F32 => words.iter().map(|&bits| f64::from(f32::from_bits(bits))).collect(),
        KvCacheFormat::F16 => cache_expand_f16(words),
        KvCacheFormat::Int8 => cache_expand_int8(shape, words),
    }
}

/// How far packing may take the result from that of f32, relative in L2.
fn loss(cache: KvCacheFormat) -> f64 {
    match cache {
        KvCacheFormat::F32 => SOFTMAX,
        KvCacheFormat::F16 => 2e-3,
        KvCacheFormat::Int8 => 2e-2,
    }
}

/// One query over a random cache with NaN after its last row, and what comes out.
pub(crate) struct Query {
    shape: CausalAttention,
    keys: usize,
    row: Vec<f32>,
    words: Vec<u32>,
    step: Step,
    /// Results for the cache as packed, and as it was before.
    expected: Vec<f64>,
    unpacked: Vec<f64>,
}

impl Query {
    pub fn new(lane: &Lane, heads: Heads, cache: KvCacheFormat, keys: usize, size: f32) -> Self {
        Self::with(lane, Setting::plain(heads), cache, keys, size)
    }

    fn with(lane: &Lane, setting: Setting, cache: KvCacheFormat, keys: usize, size: f32) -> Self {
        let shape = setting.twin(1);
        let row: Vec<f32> = lane.normal(shape.qkv_width()).iter().map(|x| x * size).collect();
        let rows = lane.normal(keys * shape.cache_width());
        let mut words = packed(cache, shape, &rows);
        let of = |cache: &[f64]| attention_decode(shape, &wide(&row), cache, keys);
        let (expected, unpacked) = (of(&expanded(cache, shape, &words)), of(&wide(&rows)));
        // As f32, as f16 and as a scale, these words are NaN.
        words.resize(words.len() + words.len() / keys * 9, u32::MAX);
        let step = Step { position: keys as u32 - 1, ..Step::of(1) };
        Self { shape, keys, row, words, step, expected, unpacked }
    }

    fn job(&self, kernel: &Kernel, output: usize) -> Job {
        let operands = [
            Operand::floats(&self.row),
            Operand::words(&self.words),
            Operand::poison(output),
            Operand::uniform(&self.step),
        ];
        Job::new(kernel, 1, operands.to_vec())
    }

    fn check(&self, got: &[f32], cache: KvCacheFormat, tolerance: f64) -> Result<(), String> {
        let keys = self.keys;
        close(&format!("{keys} keys"), got, &self.expected, tolerance)?;
        // What packing costs is measured with heads that models have: a dozen results of a head of 4 that
        // cancel over 1,000 keys scatter beyond any bound.
        if self.shape.head_dim < 32 {
            return Ok(());
        }
        let what = format!("{keys} keys against an f32 cache");
        close(&what, got, &self.unpacked, loss(cache).max(tolerance))
    }

    /// Every kernel that reads the cache in one range.
    pub async fn whole(
        &self,
        lane: &Lane,
        kernels: &[Kernel],
        cache: KvCacheFormat,
        tolerance: f64,
    ) -> Result<(), String> {
        let width = self.shape.out_width();
        let jobs: Vec<_> = kernels.iter().map(|kernel| self.job(kernel, width)).collect();
        for (job, got) in jobs.iter().zip(lane.run(&jobs).await.map_err(text)?) {
            self.check(&got.floats(0), cache, tolerance).map_err(of(&job.kernel))?;
        }
        Ok(())
    }

    /// Every kernel that reads it in `count` ranges, each with every kernel that merges them: the
    /// active ranges are written, the others left alone.
    pub async fn split(
        &self,
        lane: &Lane,
        [splits, merges]: [&[Kernel]; 2],
        count: usize,
        cache: KvCacheFormat,
        tolerance: f64,
    ) -> Result<(), String> {
        let row = self.shape.head_dim + PARTIAL_STATE;
        let active = self.keys.div_ceil(self.keys.div_ceil(count).next_multiple_of(RANGE_KEYS));
        let len = self.shape.n_heads * count * row;
        let jobs: Vec<_> = splits.iter().map(|kernel| self.job(kernel, len)).collect();
        let mut second = vec![];
        for (job, got) in jobs.iter().zip(lane.run(&jobs).await.map_err(text)?) {
            let partials = got.words(0).to_vec();
            for (index, words) in partials.chunks_exact(row).enumerate() {
                let idle = index % count >= active;
                let wrong = || words.iter().any(|&word| (word == POISON) != idle);
                let what =
                    || format!("{} keys, range {}: written wrongly", self.keys, index % count);
                forbid(("idle", idle), wrong, what).map_err(of(&job.kernel))?;
            }
            for kernel in merges {
                let operands = [
                    Operand::words(&partials),
                    Operand::poison(self.shape.out_width()),
                    Operand::uniform(&self.step),
                ];
                second.push((&job.kernel, Job::new(kernel, 1, operands.to_vec())));
            }
        }
        let jobs: Vec<_> = second.iter().map(|(_, job)| job.clone()).collect();
        for ((split, job), got) in second.iter().zip(lane.run(&jobs).await.map_err(text)?) {
            self.check(&got.floats(0), cache, tolerance)
                .map_err(of(&job.kernel))
                .map_err(of(split))?;
        }
        Ok(())
    }
}

pub(crate) fn decoders(
    lane: &Lane,
    heads: Heads,
    cache: KvCacheFormat,
    count: usize,
) -> Result<Vec<Kernel>, String> {
    let over = DecodeOver::Cache(shapes(heads, 1).1, cache);
    let by =
        |splits: DecodeSplits| lane.variants_of(k::AttentionDecode { over, splits }).map_err(text);
    let mut made = by(ranges(count))?;
    if count > 1 {
        // A query head's own, as of short texts.
        let near = by(DecodeSplits { count, reason: SplitReason::Merged { keys: 1024 } })?;
        made.extend(near.into_iter().filter(|kernel| kernel.reason.contains("1 query head")));
    }
    Ok(made)
}

pub(crate) fn mergers(lane: &Lane, heads: Heads, count: usize) -> Result<Vec<Kernel>, String> {
    let over = DecodeOver::Cache(shapes(heads, 1).1, KvCacheFormat::F32);
    lane.variants_of(k::AttentionDecodeMerge { of: over.partials(), splits: ranges(count) })
        .map_err(text)
}

async fn decode(lane: Rc<Lane>, heads: Heads, cache: KvCacheFormat) -> Outcome {
    const COUNT: usize = 5;
    // Every workgroup size at one width, every form of the kernel at all of them: software adapters
    // compile for long.
    let all = heads.2 == 4 && cache == KvCacheFormat::F32;
    let some = |kernels: Vec<Kernel>| if all { kernels } else { forms(kernels) };
    let made = some(decoders(&lane, heads, cache, COUNT)?);
    let merges = some(mergers(&lane, heads, COUNT)?);
    // One short range at most; then one key in a second range, then four ranges of 256.
    for keys in [1, 2, RANGE_KEYS - 1, RANGE_KEYS, RANGE_KEYS + 1, 1000] {
        let query = Query::new(&lane, heads, cache, keys, 1.0);
        query.split(&lane, [&made, &merges], COUNT, cache, SOFTMAX).await?;
    }
    // One range differs from several in where its result goes alone.
    if heads.2 == 4 || (heads.2 == 64 && cache == KvCacheFormat::F32) {
        let made = forms(decoders(&lane, heads, cache, 1)?);
        for keys in [1, 7, 263] {
            let query = Query::new(&lane, heads, cache, keys, 1.0);
            query.whole(&lane, &made, cache, SOFTMAX).await?;
        }
    }
    Ok(lane.summary())
}

/// One kernel of each variant.
pub(crate) fn forms(kernels: Vec<Kernel>) -> Vec<Kernel> {
    let mut forms: Vec<Kernel> = vec![];
    for kernel in kernels {
        if !forms.iter().any(|form| form.variant == kernel.variant) {
            forms.push(kernel);
        }
    }
    forms
}

/// Scores of ±10,000: one key takes nearly all the weight, and rounding of scores is all there is.
async fn large_scores(lane: Rc<Lane>) -> Outcome {
    let heads = (4, 2, 32);
    let query = Query::new(&lane, heads, KvCacheFormat::F32, 300, 1e4);
    query
        .whole(
            &lane,
            &forms(decoders(&lane, heads, KvCacheFormat::F32, 1)?),
            KvCacheFormat::F32,
            2e-2,
        )
        .await?;
    let (splits, merges) =
        (forms(decoders(&lane, heads, KvCacheFormat::F32, 3)?), mergers(&lane, heads, 3)?);
    query.split(&lane, [&splits, &merges], 3, KvCacheFormat::F32, 2e-2).await?;
    Ok(lane.summary())
}

async fn long(lane: Rc<Lane>) -> Outcome {
    let heads = (3, 1, 4);
    for (keys, count) in [(8_200, 16), (32_768, 130)] {
        let query = Query::new(&lane, heads, KvCacheFormat::F32, keys, 1.0);
        let made = [
            forms(decoders(&lane, heads, KvCacheFormat::F32, count)?),
            mergers(&lane, heads, count)?,
        ];
        query.split(&lane, [&made[0], &made[1]], count, KvCacheFormat::F32, 2.0 * SOFTMAX).await?;
    }
    Ok(lane.summary())
}

/// A query that sees the last keys alone, their scores capped: the keys before are NaN.
async fn window(lane: Rc<Lane>) -> Outcome {
    const WINDOW: usize = 150;
    let setting = Setting {
        window: Some(WINDOW),
        soft_cap: Some(0.7),
        scale: Some(0.3),
        ..Setting::plain((3, 1, 4))
    };
    for count in [1, 2] {
        let splits = ranges(count);
        let over = DecodeOver::Cache(setting.cached(None), KvCacheFormat::F32);
        let made = forms(lane.variants_of(k::AttentionDecode { over, splits }).map_err(text)?);
        let merges = lane
            .variants_of(k::AttentionDecodeMerge { of: over.partials(), splits })
            .map_err(text)?;
        for keys in [1, WINDOW - 1, WINDOW, WINDOW + 1, 400] {
            let seen = keys.min(WINDOW);
            let mut query = Query::with(&lane, setting, KvCacheFormat::F32, seen, 1.0);
            let unseen = (keys - seen) * query.shape.cache_width();
            query.words.splice(0..0, std::iter::repeat_n(u32::MAX, unseen));
            query.step.position = keys as u32 - 1;
            if count == 1 {
                query.whole(&lane, &made, KvCacheFormat::F32, SOFTMAX).await?;
            } else {
                query.split(&lane, [&made, &merges], count, KvCacheFormat::F32, SOFTMAX).await?;
            }
        }
    }
    Ok(lane.summary())
}

/// A window in a cache that has begun anew, once or more often, and whose other rows are NaN.
async fn ring(lane: Rc<Lane>, cache: KvCacheFormat) -> Outcome {
    const WINDOW: usize = 150;
    const RING: usize = 180;
    let setting = Setting { window: Some(WINDOW), scale: Some(0.3), ..Setting::plain((3, 1, 4)) };
    let over = DecodeOver::Cache(setting.cached(Some(RING)), cache);
    for count in [1, 2] {
        let splits = ranges(count);
        let made = forms(lane.variants_of(k::AttentionDecode { over, splits }).map_err(text)?);
        let merges = lane
            .variants_of(k::AttentionDecodeMerge { of: over.partials(), splits })
            .map_err(text)?;
        // Shorter than the ring; one row past it; the window across its end; many times around.
        for keys in [100, RING + 1, 2 * RING + 40, 1000] {
            let seen = keys.min(WINDOW);
            let mut query = Query::with(&lane, setting, cache, seen, 1.0);
            let row = setting.shape().row_words(cache);
            let mut words = vec![u32::MAX; RING * row];
            for (i, from) in query.words.chunks_exact(row).take(seen).enumerate() {
                words[(keys - seen + i) % RING * row..][..row].copy_from_slice(from);
            }
            query.words = words;
            query.step.position = keys as u32 - 1;
            if count == 1 {
                query.whole(&lane, &made, cache, SOFTMAX).await?;
            } else {
                query.split(&lane, [&made, &merges], count, cache, SOFTMAX).await?;
            }
        }
    }
    Ok(lane.summary())
}

/// Random ranges, some of them without weight, and NaN after the active ones.
async fn merge(lane: Rc<Lane>) -> Outcome {
    const COUNT: usize = 70;
    for heads in [(3, 1, 4), (2, 2, 80), (2, 1, 256)] {
        let (shape, _) = shapes(heads, 1);
        let made = mergers(&lane, heads, COUNT)?;
        for active in [1, 3, 67] {
            let mut partials = vec![f32::NAN; shape.n_heads * COUNT * (shape.head_dim + 4)];
            let mut expected = vec![];
            for rows in partials.chunks_exact_mut(COUNT * (shape.head_dim + 4)) {
                let mut whole = PartialSoftmax::empty(shape.head_dim);
                for (index, row) in
                    rows.chunks_exact_mut(shape.head_dim + 4).take(active).enumerate()
                {
                    let part = if index % 3 == 1 {
                        PartialSoftmax::empty(shape.head_dim)
                    } else {
                        let [largest, total] = [0, 1].map(|_| f64::from(lane.normal(1)[0]));
                        let sum = wide(&lane.normal(shape.head_dim));
                        let largest = f64::from((8.0 * largest) as f32);
                        PartialSoftmax {
                            sum,
                            largest,
                            total: f64::from((1.0 + total.abs()) as f32),
                        }
                    };
                    row[..shape.head_dim].copy_from_slice(&narrow(&part.sum));
                    let state = [part.largest, part.total, 0.0, 0.0];
                    row[shape.head_dim..].copy_from_slice(&narrow(&state));
                    whole = attention_decode_merge(&whole, &part);
                }
                expected.extend(whole.sum.iter().map(|x| x / whole.total));
            }
            // Each of the active ranges has 64 keys.
            let position = (active * RANGE_KEYS) as u32 - 1;
            let operands = [
                Operand::floats(&partials),
                Operand::poison(shape.out_width()),
                Operand::uniform(&Step { position, ..Step::of(1) }),
            ];
            let jobs: Vec<_> =
                made.iter().map(|kernel| Job::new(kernel, 1, operands.to_vec())).collect();
            for (job, got) in jobs.iter().zip(lane.run(&jobs).await.map_err(text)?) {
                close(&format!("{active} ranges"), &got.floats(0), &expected, SOFTMAX)
                    .map_err(of(&job.kernel))?;
            }
        }
    }
    the_twins_agree(&lane)?;
    Ok(lane.summary())
}

/// Ranges cut anywhere and merged are the whole.
fn the_twins_agree(lane: &Lane) -> Result<(), String> {
    let (shape, _) = shapes((4, 2, 32), 1);
    let (row, cache) = (lane.normal(shape.qkv_width()), lane.normal(50 * shape.cache_width()));
    let (row, cache) = (wide(&row), wide(&cache));
    let whole = attention_decode(shape, &row, &cache, 50);
    for head in 0..shape.n_heads {
        let part = |range| attention_decode_split(shape, &row, &cache, head, range);
        let halves = attention_decode_merge(&part(0..17), &part(17..17));
        let merged = attention_decode_merge(&part(17..50), &halves);
        let got: Vec<f64> = merged.sum.iter().map(|x| x / merged.total).collect();
        close("the twins", &narrow(&got), &whole[head * 32..][..32], 1e-7)?;
    }
    Ok(())
}
